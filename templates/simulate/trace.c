/*
 * QEMU plugin that counts how often each block of instructions runs, layer by layer. Arguments:
 *
 *   run=ADDRESS     counting starts when this address is executed
 *   stop=FROM-TO    counting stops when control enters this range of addresses
 *   mark=ADDRESS    executed after each layer
 *   skip=FROM-TO    not counted (can be given several times)
 *   edges=1         also count pairs of consecutive blocks
 *   out=PATH        file for the counts
 *
 * Lines of the result: "layer address bytes instructions count entered". `entered` is the number of
 * times that control reached the block other than from the instruction directly before it. With
 * edges=1, the lines of a layer are followed by "layer from bytes to bytes count edge": blocks by
 * address and bytes. Each run of the model ends with a line "end".
 *
 * The declarations replace qemu-plugin.h, which distributions do not ship
 * (https://www.qemu.org/docs/master/devel/tcg-plugins.html).
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_SKIPPED 64
#define PAGE 1024u

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum callback_flags { NO_REGISTERS };

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned int, void *), enum callback_flags, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);

EXPORT int qemu_plugin_version = PLUGIN_VERSION;

struct block;

typedef struct edge {
    struct edge *next;
    const struct block *from;
    uint64_t count;
} edge;

typedef struct block {
    struct block *next;
    edge *edges;
    uint64_t address;
    uint64_t bytes;
    uint64_t instructions;
    uint64_t count;
    uint64_t entered;
} block;

typedef struct {
    uint64_t from;
    uint64_t to;
} range;

static block *blocks;
static const block *previous;
static bool counting;
static bool counts_edges;
static unsigned int layer;
static uint64_t run_address;
static uint64_t mark_address;
static range stop;
static range skipped[MAX_SKIPPED];
static size_t skipped_count;
static FILE *out;

static bool within(const range *where, uint64_t address)
{
    return address >= where->from && address < where->to;
}

/*
 * Returns whether a block directly follows another one. QEMU counts half of an instruction that
 * crosses two pages.
 */
static bool follows(const block *next, const block *before)
{
    const uint64_t end = before->address + before->bytes;

    return next->address == end || (end % PAGE == 0 && next->address == end + 2);
}

static void count_edge(const block *from, block *to)
{
    edge *e = to->edges;

    while (e != NULL && e->from != from) {
        e = e->next;
    }
    if (e == NULL) {
        e = calloc(1, sizeof *e);
        if (e == NULL) {
            abort();
        }
        e->from = from;
        e->next = to->edges;
        to->edges = e;
    }
    e->count++;
}

static void write_edges(void)
{
    for (block *b = blocks; b != NULL; b = b->next) {
        for (edge *e = b->edges; e != NULL; e = e->next) {
            if (e->count > 0) {
                fprintf(out, "%u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " edge\n", layer, e->from->address, e->from->bytes, b->address, b->bytes, e->count);
            }
            e->count = 0;
        }
    }
}

static void write_layer(void)
{
    for (block *b = blocks; b != NULL; b = b->next) {
        if (b->count > 0) {
            fprintf(out, "%u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", layer, b->address, b->bytes, b->instructions, b->count, b->entered);
        }
        b->count = 0;
        b->entered = 0;
    }
    write_edges();
    layer++;
}

static void executed(unsigned int cpu, void *data)
{
    block *const b = data;

    (void)cpu;
    if (!counting) {
        if (b->address != run_address) {
            return;
        }
        counting = true;
        previous = NULL;
        layer = 0;
    }
    if (within(&stop, b->address)) {
        write_layer();
        fprintf(out, "end\n");
        fflush(out);
        counting = false;
        return;
    }
    if (b->address == mark_address) {
        write_layer();
    }
    for (size_t i = 0; i < skipped_count; i++) {
        if (within(&skipped[i], b->address)) {
            previous = NULL;
            return;
        }
    }
    b->count++;
    if (previous != NULL && !follows(b, previous)) {
        b->entered++;
    }
    if (previous != NULL && counts_edges) {
        count_edge(previous, b);
    }
    previous = b;
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
    block *const b = calloc(1, sizeof *b);

    (void)id;
    if (b == NULL) {
        abort();
    }
    b->address = qemu_plugin_tb_vaddr(tb);
    b->instructions = qemu_plugin_tb_n_insns(tb);
    for (size_t i = 0; i < b->instructions; i++) {
        b->bytes += qemu_plugin_insn_size(qemu_plugin_tb_get_insn(tb, i));
    }
    b->next = blocks;
    blocks = b;
    qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, NO_REGISTERS, b);
}

static range parse_range(const char *text)
{
    char *end;
    range parsed;

    parsed.from = strtoull(text, &end, 0);
    parsed.to = *end == '-' ? strtoull(end + 1, NULL, 0) : 0;
    return parsed;
}

EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "run=", 4) == 0) {
            run_address = strtoull(argv[i] + 4, NULL, 0);
        } else if (strncmp(argv[i], "mark=", 5) == 0) {
            mark_address = strtoull(argv[i] + 5, NULL, 0);
        } else if (strncmp(argv[i], "stop=", 5) == 0) {
            stop = parse_range(argv[i] + 5);
        } else if (strncmp(argv[i], "skip=", 5) == 0 && skipped_count < MAX_SKIPPED) {
            skipped[skipped_count++] = parse_range(argv[i] + 5);
        } else if (strcmp(argv[i], "edges=1") == 0) {
            counts_edges = true;
        } else if (strncmp(argv[i], "out=", 4) == 0) {
            out = fopen(argv[i] + 4, "w");
        }
    }
    if (out == NULL) {
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
