/* libnearlight_nccl_audit.so, for LD_AUDIT beside LD_PRELOAD of libnearlight_nccl.so: whoever looks up a
 * function of NCCL in a copy of libnccl, by dlsym or as a library that is linked to it, gets the drop-in's
 * function of that name. The copies themselves are loaded as ever, from where the program finds them, and
 * functions that the drop-in does not have stay theirs.
 *
 * The loader keeps this library apart from the program, with a C library of its own: so it is C and needs
 * nothing else. */
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <string.h>

/* The tables by which the loader finds the drop-in's functions; symbols is NULL until it has come. Only
 * written while the loader holds its lock. dlsym is no help: a preloaded library has no list of its own to
 * search. */
static struct {
  uintptr_t base;
  const Elf64_Sym* symbols;
  const char* names;
  const uint32_t* hash; /* DT_GNU_HASH */
} drop_in;

static void remember(const struct link_map* map) {
  const Elf64_Sym* symbols = NULL;
  for (const Elf64_Dyn* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    /* The loader has added the base already, but on machines where this table cannot be written. */
    const uintptr_t value = entry->d_un.d_ptr;
    const uintptr_t address = value < map->l_addr ? value + map->l_addr : value;
    if (entry->d_tag == DT_SYMTAB) symbols = (const Elf64_Sym*)address;
    if (entry->d_tag == DT_STRTAB) drop_in.names = (const char*)address;
    if (entry->d_tag == DT_GNU_HASH) drop_in.hash = (const uint32_t*)address;
  }
  drop_in.base = map->l_addr;
  if (drop_in.names != NULL && drop_in.hash != NULL) drop_in.symbols = symbols;
}

/* 0: the drop-in has no such function. The layout is that of the loader's own look-up. */
static uintptr_t find(const char* name) {
  if (drop_in.symbols == NULL) return 0;
  uint32_t hash = 5381;
  for (const unsigned char* letter = (const unsigned char*)name; *letter != 0; ++letter)
    hash = hash * 33 + *letter;
  const uint32_t buckets = drop_in.hash[0], first = drop_in.hash[1], filters = drop_in.hash[2];
  const uint32_t* const bucket = drop_in.hash + 4 + filters * (sizeof(Elf64_Addr) / sizeof(uint32_t));
  const uint32_t* const chain = bucket + buckets;
  uint32_t i = bucket[hash % buckets];
  if (i < first) return 0;
  for (;; ++i) {
    const Elf64_Sym* const symbol = &drop_in.symbols[i];
    if ((chain[i - first] | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
        strcmp(drop_in.names + symbol->st_name, name) == 0) {
      return drop_in.base + symbol->st_value;
    }
    if ((chain[i - first] & 1) != 0) return 0; /* the last of its bucket */
  }
}

static const char* base_name(const char* path) {
  const char* const slash = strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

static int begins_with(const char* text, const char* beginning) {
  return strncmp(text, beginning, strlen(beginning)) == 0;
}

unsigned la_version(unsigned version) { return version < LAV_CURRENT ? version : LAV_CURRENT; }

/* The cookie of a library whose look-ups are left alone. */
static const uintptr_t kLeftAlone = 0;

unsigned la_objopen(struct link_map* map, Lmid_t list, uintptr_t* cookie) {
  if (list != LM_ID_BASE || map->l_name == NULL) return 0;
  const char* const name = base_name(map->l_name);
  /* What is nearlight's own looks NCCL up to call it, and must find it. The loader asks about its dlsym all
   * the same. */
  if (begins_with(name, "libnearlight")) {
    if (strcmp(name, "libnearlight_nccl.so") == 0) remember(map);
    *cookie = kLeftAlone;
    return 0;
  }
  /* Nor its own calls to itself. libnccl-net.so and the like are other libraries. */
  if (begins_with(name, "libnccl.so")) {
    *cookie = kLeftAlone;
    return LA_FLG_BINDTO;
  }
  return LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym* symbol, unsigned index, uintptr_t* from, uintptr_t* to, unsigned* flags,
                       const char* name) {
  (void)index, (void)to;
  *flags |= LA_SYMB_NOPLTENTER | LA_SYMB_NOPLTEXIT;
  if (*from == kLeftAlone) return symbol->st_value;
  if (!begins_with(name, "nccl") && !begins_with(name, "pnccl")) return symbol->st_value;
  const uintptr_t function = find(name);
  return function != 0 ? function : symbol->st_value;
}
