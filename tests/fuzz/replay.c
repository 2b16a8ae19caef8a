/* replay.c: runs a fuzz target without libFuzzer: each file of the corpus folders named on the
 * command line as it is,
 * cut at several places, and with single bits flipped. Same corpus and seed, same inputs. A crash
 * or a sanitizer report
 * is the failure; an empty corpus is one too. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE (4u << 20)
#define CUTS 12
#define FLIPS 48

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t seed = 0x5eed;
static unsigned long runs;

static uint64_t draw(void) /* splitmix64 */
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The target gets a copy of exactly `size` bytes, so that a sanitizer sees the first byte read
 * beyond. */
static void run_one(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size == 0 ? 1 : size);
    if (copy == NULL) abort();
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    runs++;
}

static void run_variants(uint8_t *data, size_t size)
{
    run_one(data, size);
    const size_t ends[] = { 0, 1, size / 4, size / 2, size - size / 4, size - 1 };
    for (size_t i = 0; i < CUTS; i++) {
        size_t end = i < 6 ? ends[i] : (size_t)(draw() % (size + 1));
        if (end < size) run_one(data, end);
    }
    for (size_t i = 0; i < FLIPS && size != 0; i++) {
        /* Half of the flips fall into the first 256 bytes, where headers are. */
        size_t at = (size_t)(draw() % (i % 2 == 0 && size > 256 ? 256 : size));
        uint8_t bit = (uint8_t)(1u << draw() % 8);
        data[at] ^= bit;
        run_one(data, size);
        data[at] ^= bit;
    }
}

static int replay_file(const char *path)
{
    static uint8_t data[MAX_FILE];
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        fprintf(stderr, "%s: cannot be opened\n", path);
        return 1;
    }
    size_t size = fread(data, 1, sizeof data, f);
    fclose(f);
    if (size == sizeof data) {
        fprintf(stderr, "%s: longer than %u bytes\n", path, MAX_FILE);
        return 1;
    }
    run_variants(data, size);
    return 0;
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int replay_folder(const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, visible, alphasort), failed = 0;
    if (count <= 0) {
        fprintf(stderr, "%s: no corpus files\n", folder);
        return 1;
    }
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        printf("%s\n", path); /* the last line names the culprit of a crash */
        fflush(stdout);
        failed |= replay_file(path);
        free(entries[i]);
    }
    free(entries);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = argc < 2;
    printf("seed 0x%llx\n", (unsigned long long)seed);
    for (int i = 1; i < argc; i++) failed |= replay_folder(argv[i]);
    printf("%lu inputs\n", runs);
    return failed;
}
