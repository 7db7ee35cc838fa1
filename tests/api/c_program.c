/* nearlight.h as a C99 program sees it: compiled with all warnings as errors, linked against the shared
 * library. The layouts stand here as numbers: a change of one breaks programs that are already compiled. */
#include <nearlight/device.h>
#include <nearlight/nearlight.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;
#define CHECK(condition)                                     \
  do {                                                       \
    if (!(condition)) {                                      \
      ++failures;                                            \
      printf("line %d: not so: %s\n", __LINE__, #condition); \
    }                                                        \
  } while (0)

#define PIN_FIELD(type, field, offset, bytes) \
  CHECK(offsetof(type, field) == (offset) && sizeof(((type*)0)->field) == (bytes))

static void check_layouts(void) {
  CHECK(sizeof(nearlightComm_t) == 8);
  CHECK(sizeof(nearlightResult_t) == 4);
  CHECK(sizeof(nearlightDataType_t) == 4);
  CHECK(sizeof(nearlightRedOp_t) == 4);
  CHECK(sizeof(nearlightCollective_t) == 4);
  CHECK(sizeof(nearlightScalarResidence_t) == 4);

  CHECK(sizeof(nearlightConfig_t) == 64);
  PIN_FIELD(nearlightConfig_t, size, 0, 8);
  PIN_FIELD(nearlightConfig_t, timeout_ms, 8, 8);
  PIN_FIELD(nearlightConfig_t, create_timeout_ms, 16, 8);
  PIN_FIELD(nearlightConfig_t, check, 24, 4);
  PIN_FIELD(nearlightConfig_t, regions, 28, 4);
  PIN_FIELD(nearlightConfig_t, slots, 32, 4);
  PIN_FIELD(nearlightConfig_t, chunk_bytes, 36, 4);
  PIN_FIELD(nearlightConfig_t, packets, 40, 4);
  PIN_FIELD(nearlightConfig_t, max_ctas, 44, 4);
  PIN_FIELD(nearlightConfig_t, deterministic, 48, 4);
  PIN_FIELD(nearlightConfig_t, lines, 52, 4);
  PIN_FIELD(nearlightConfig_t, early_launch, 56, 4);
  PIN_FIELD(nearlightConfig_t, reserved, 60, 4);

  CHECK(sizeof(nearlightCommInfo_t) == 56);
  PIN_FIELD(nearlightCommInfo_t, size, 0, 8);
  PIN_FIELD(nearlightCommInfo_t, rank, 8, 4);
  PIN_FIELD(nearlightCommInfo_t, nranks, 12, 4);
  PIN_FIELD(nearlightCommInfo_t, backend, 16, 8);
  PIN_FIELD(nearlightCommInfo_t, memory, 24, 8);
  PIN_FIELD(nearlightCommInfo_t, scratch_bytes, 32, 8);
  PIN_FIELD(nearlightCommInfo_t, early_launch, 40, 4);
  PIN_FIELD(nearlightCommInfo_t, reserved, 44, 4);
  PIN_FIELD(nearlightCommInfo_t, memory_reason, 48, 8);

  CHECK(sizeof(nearlightCommStatus_t) == 560);
  PIN_FIELD(nearlightCommStatus_t, size, 0, 8);
  PIN_FIELD(nearlightCommStatus_t, result, 8, 4);
  PIN_FIELD(nearlightCommStatus_t, rank, 12, 4);
  PIN_FIELD(nearlightCommStatus_t, peer, 16, 4);
  PIN_FIELD(nearlightCommStatus_t, epoch, 20, 4);
  PIN_FIELD(nearlightCommStatus_t, region, 24, 4);
  PIN_FIELD(nearlightCommStatus_t, slot, 28, 4);
  PIN_FIELD(nearlightCommStatus_t, expected, 32, 4);
  PIN_FIELD(nearlightCommStatus_t, seen, 36, 4);
  PIN_FIELD(nearlightCommStatus_t, time_ns, 40, 8);
  PIN_FIELD(nearlightCommStatus_t, text, 48, 512);

  CHECK(sizeof(nearlightRouteCounters_t) == 32);
  PIN_FIELD(nearlightRouteCounters_t, algorithm, 0, 8);
  PIN_FIELD(nearlightRouteCounters_t, protocol, 8, 8);
  PIN_FIELD(nearlightRouteCounters_t, operations, 16, 8);
  PIN_FIELD(nearlightRouteCounters_t, bytes, 24, 8);

  CHECK(sizeof(nearlightCounters_t) == 648);
  PIN_FIELD(nearlightCounters_t, size, 0, 8);
  PIN_FIELD(nearlightCounters_t, all_reduces, 8, 8);
  PIN_FIELD(nearlightCounters_t, barriers, 16, 8);
  PIN_FIELD(nearlightCounters_t, bytes, 24, 8);
  PIN_FIELD(nearlightCounters_t, captured, 32, 8);
  PIN_FIELD(nearlightCounters_t, failures, 40, 8);
  PIN_FIELD(nearlightCounters_t, routes, 48, 8);
  PIN_FIELD(nearlightCounters_t, route, 56, 512);
  PIN_FIELD(nearlightCounters_t, all_gathers, 568, 8);
  PIN_FIELD(nearlightCounters_t, reduce_scatters, 576, 8);
  PIN_FIELD(nearlightCounters_t, broadcasts, 584, 8);
  PIN_FIELD(nearlightCounters_t, reduces, 592, 8);
  PIN_FIELD(nearlightCounters_t, all_to_alls, 600, 8);
  PIN_FIELD(nearlightCounters_t, send_recvs, 608, 8);
  PIN_FIELD(nearlightCounters_t, all_reduce_rms_norms, 616, 8);
  PIN_FIELD(nearlightCounters_t, all_reduce_biases, 624, 8);
  PIN_FIELD(nearlightCounters_t, gemv_all_reduces, 632, 8);
  PIN_FIELD(nearlightCounters_t, all_gather_gemvs, 640, 8);

  CHECK(sizeof(nearlightRoute_t) == 40);
  PIN_FIELD(nearlightRoute_t, size, 0, 8);
  PIN_FIELD(nearlightRoute_t, algorithm, 8, 8);
  PIN_FIELD(nearlightRoute_t, protocol, 16, 8);
  PIN_FIELD(nearlightRoute_t, reason, 24, 8);
  PIN_FIELD(nearlightRoute_t, grid, 32, 4);
  PIN_FIELD(nearlightRoute_t, threads, 36, 4);

  CHECK(sizeof(nearlightRmsNorm_t) == 88);
  PIN_FIELD(nearlightRmsNorm_t, size, 0, 8);
  PIN_FIELD(nearlightRmsNorm_t, input, 8, 8);
  PIN_FIELD(nearlightRmsNorm_t, residual, 16, 8);
  PIN_FIELD(nearlightRmsNorm_t, weight, 24, 8);
  PIN_FIELD(nearlightRmsNorm_t, residual_out, 32, 8);
  PIN_FIELD(nearlightRmsNorm_t, out, 40, 8);
  PIN_FIELD(nearlightRmsNorm_t, scale, 48, 8);
  PIN_FIELD(nearlightRmsNorm_t, tokens, 56, 8);
  PIN_FIELD(nearlightRmsNorm_t, hidden, 64, 8);
  PIN_FIELD(nearlightRmsNorm_t, type, 72, 4);
  PIN_FIELD(nearlightRmsNorm_t, out_type, 76, 4);
  PIN_FIELD(nearlightRmsNorm_t, eps, 80, 4);
  PIN_FIELD(nearlightRmsNorm_t, reserved, 84, 4);

  CHECK(sizeof(nearlightChannelConfig_t) == 32);
  PIN_FIELD(nearlightChannelConfig_t, size, 0, 8);
  PIN_FIELD(nearlightChannelConfig_t, channels, 8, 4);
  PIN_FIELD(nearlightChannelConfig_t, slots, 12, 4);
  PIN_FIELD(nearlightChannelConfig_t, packets, 16, 4);
  PIN_FIELD(nearlightChannelConfig_t, cells, 20, 4);
  PIN_FIELD(nearlightChannelConfig_t, peers, 24, 4);
  PIN_FIELD(nearlightChannelConfig_t, checks, 28, 4);

  CHECK(sizeof(nearlightChannel_t) == 112);
  PIN_FIELD(nearlightChannel_t, size, 0, 8);
  PIN_FIELD(nearlightChannel_t, base, 8, 8);
  PIN_FIELD(nearlightChannel_t, stride, 16, 8);
  PIN_FIELD(nearlightChannel_t, own, 24, 8);
  PIN_FIELD(nearlightChannel_t, abort, 32, 8);
  PIN_FIELD(nearlightChannel_t, claim, 40, 8);
  PIN_FIELD(nearlightChannel_t, valid, 48, 8);
  PIN_FIELD(nearlightChannel_t, record, 56, 8);
  PIN_FIELD(nearlightChannel_t, timeout_ns, 64, 8);
  PIN_FIELD(nearlightChannel_t, rank, 72, 4);
  PIN_FIELD(nearlightChannel_t, nranks, 76, 4);
  PIN_FIELD(nearlightChannel_t, channels, 80, 4);
  PIN_FIELD(nearlightChannel_t, slots, 84, 4);
  PIN_FIELD(nearlightChannel_t, packets, 88, 4);
  PIN_FIELD(nearlightChannel_t, cells, 92, 4);
  PIN_FIELD(nearlightChannel_t, peers, 96, 4);
  PIN_FIELD(nearlightChannel_t, checks, 100, 4);
  PIN_FIELD(nearlightChannel_t, collective, 104, 4);
  PIN_FIELD(nearlightChannel_t, reserved, 108, 4);

  CHECK(sizeof(nearlightSpan_t) == 56);
  PIN_FIELD(nearlightSpan_t, size, 0, 8);
  PIN_FIELD(nearlightSpan_t, name, 8, 8);
  PIN_FIELD(nearlightSpan_t, begin_ns, 16, 8);
  PIN_FIELD(nearlightSpan_t, end_ns, 24, 8);
  PIN_FIELD(nearlightSpan_t, message, 32, 8);
  PIN_FIELD(nearlightSpan_t, track, 40, 4);
  PIN_FIELD(nearlightSpan_t, to, 44, 4);
  PIN_FIELD(nearlightSpan_t, from, 48, 4);
  PIN_FIELD(nearlightSpan_t, reserved, 52, 4);
}

static void check_numbers(void) {
  CHECK(nearlightSuccess == 0 && nearlightCudaError == 1 && nearlightSystemError == 2);
  CHECK(nearlightInternalError == 3 && nearlightInvalidArgument == 4 && nearlightInvalidUsage == 5);
  CHECK(nearlightRemoteError == 6 && nearlightInProgress == 7 && nearlightTimeout == 8);
  CHECK(nearlightUnsupported == 100 && nearlightAborted == 101);
  CHECK(nearlightInt8 == 0 && nearlightUint8 == 1 && nearlightInt32 == 2 && nearlightUint32 == 3);
  CHECK(nearlightInt64 == 4 && nearlightUint64 == 5 && nearlightFloat16 == 6 && nearlightFloat32 == 7);
  CHECK(nearlightFloat64 == 8 && nearlightBfloat16 == 9 && nearlightFloat8e4m3 == 10);
  CHECK(nearlightFloat8e5m2 == 11);
  CHECK(nearlightSum == 0 && nearlightProd == 1 && nearlightMax == 2 && nearlightMin == 3);
  CHECK(nearlightAvg == 4 && nearlightCollectiveAllReduce == 1);
  CHECK(nearlightCollectiveAllGather == 3 && nearlightCollectiveReduceScatter == 4);
  CHECK(nearlightCollectiveBroadcast == 5 && nearlightCollectiveReduce == 6);
  CHECK(nearlightCollectiveAllToAll == 7);
  CHECK(nearlightCollectiveAllReduceRmsNorm == 16 && nearlightCollectiveAllReduceBias == 17);
  CHECK(nearlightScalarDevice == 0 && nearlightScalarHostImmediate == 1);
}

static void check_calls(void) {
  nearlightComm_t comm = NULL;
  nearlightConfig_t config = NEARLIGHT_CONFIG_INITIALIZER;
  nearlightCommInfo_t info = NEARLIGHT_COMM_INFO_INITIALIZER;
  nearlightCommStatus_t status = NEARLIGHT_COMM_STATUS_INITIALIZER;
  nearlightRedOp_t op = nearlightSum;
  const float factor = 2.0f;
  nearlightRoute_t route = NEARLIGHT_ROUTE_INITIALIZER;
  nearlightCounters_t counters = NEARLIGHT_COUNTERS_INITIALIZER;
  int version = 0;
  float values[3] = {1.0f, 2.0f, 3.0f}, sums[3] = {0.0f, 0.0f, 0.0f};
  CHECK(NEARLIGHT_CHECK_VERSION() == nearlightSuccess);
  CHECK(nearlightGetVersion(&version) == nearlightSuccess && version == NEARLIGHT_VERSION_CODE);
  CHECK(nearlightCommCreateHostGroup(&comm, 1, &config) == nearlightSuccess);
  CHECK(nearlightAllReduce(values, sums, 3, nearlightFloat32, nearlightSum, comm, NULL) == nearlightSuccess);
  CHECK(memcmp(values, sums, sizeof values) == 0);
  CHECK(nearlightRedOpCreatePreMulSum(&op, &factor, nearlightFloat32, nearlightScalarHostImmediate, comm) ==
        nearlightSuccess);
  CHECK(nearlightAllReduce(values, sums, 3, nearlightFloat32, op, comm, NULL) == nearlightSuccess);
  CHECK(sums[2] == 6.0f);
  CHECK(nearlightRedOpDestroy(op, comm) == nearlightSuccess);
  CHECK(nearlightAllGather(values, sums, 3, nearlightFloat32, comm, NULL) == nearlightSuccess);
  CHECK(nearlightReduceScatter(values, sums, 3, nearlightFloat32, nearlightSum, comm, NULL) ==
        nearlightSuccess);
  CHECK(nearlightBroadcast(values, sums, 3, nearlightFloat32, 0, comm, NULL) == nearlightSuccess);
  CHECK(nearlightReduce(values, sums, 3, nearlightFloat32, nearlightSum, 0, comm, NULL) == nearlightSuccess);
  CHECK(nearlightAllToAll(values, sums, 3, nearlightFloat32, comm, NULL) == nearlightSuccess);
  CHECK(memcmp(values, sums, sizeof values) == 0);
  CHECK(nearlightCommGetInfo(comm, &info) == nearlightSuccess && info.nranks == 1);
  CHECK(nearlightCommGetStatus(comm, &status) == nearlightSuccess && status.result == nearlightSuccess);
  CHECK(nearlightExplain(comm, nearlightCollectiveAllReduce, 3, nearlightFloat32, nearlightSum, &route) ==
        nearlightSuccess);
  CHECK(strcmp(route.algorithm, "copy") == 0);
  CHECK(nearlightCommGetCounters(comm, &counters) == nearlightSuccess);
  CHECK(counters.all_reduces == 2 && counters.bytes == 84 && counters.failures == 0);
  CHECK(counters.all_gathers == 1 && counters.all_to_alls == 1);
  CHECK(counters.routes == 1 && strcmp(counters.route[0].algorithm, "copy") == 0);
  CHECK(nearlightAllReduce(NULL, sums, 3, nearlightFloat32, nearlightSum, comm, NULL) ==
        nearlightInvalidArgument);
  CHECK(strstr(nearlightGetLastError(), "send") != NULL);
  CHECK(strcmp(nearlightGetErrorString(nearlightTimeout), "timeout") == 0);
  CHECK(nearlightCommDestroy(comm) == nearlightSuccess);
}

int main(void) {
  check_layouts();
  check_numbers();
  check_calls();
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
