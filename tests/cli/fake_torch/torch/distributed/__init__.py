import types


def is_available():
    return True


def is_nccl_available():
    return True


def init_process_group(backend, init_method, rank, world_size, timeout):
    assert backend == "nccl" and init_method.startswith("file:///") and world_size == 1 and timeout.total_seconds() > 0


def all_reduce(tensor):
    assert not tensor.symmetric


group = types.SimpleNamespace(WORLD=types.SimpleNamespace(group_name="world"))
