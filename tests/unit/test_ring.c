/* test_ring.c: records pass whole and in order from one thread to another, whatever their sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>

#include "base/rng.h"
#include "live_bytes.h"
#include "serve/ring.h"

enum { SEED = 7, N_RECORDS = 20000 };

struct record {
    size_t number, size;
    uint8_t bytes[];
};

static size_t size_of(struct rng *r, const struct ring *ring)
{
    size_t most = ring_most(ring) - sizeof(struct record);
    return sizeof(struct record) + rng_below(r, rng_below(r, 16) ? 40 : most + 1);
}

static uint8_t byte_of(size_t number, size_t i)
{
    return (uint8_t)(number * 31 + i * 7);
}

static bool write_record(struct ring *ring, size_t number, size_t size)
{
    struct record *record = ring_reserve(ring, size);
    if (!record) return false;
    assert_int_equal((uintptr_t)record % 16, 0);
    record->number = number;
    record->size = size;
    for (size_t i = 0; i < size - sizeof *record; i++) record->bytes[i] = byte_of(number, i);
    ring_commit(ring);
    return true;
}

static bool read_record(struct ring *ring, size_t number, size_t size)
{
    const struct record *record = ring_front(ring);
    if (!record) return false;
    assert_int_equal(record->number, number);
    assert_int_equal(record->size, size);
    for (size_t i = 0; i < size - sizeof *record; i++)
        assert_int_equal(record->bytes[i], byte_of(number, i));
    ring_release(ring);
    return true;
}

static void *write_all(void *arg)
{
    struct ring *ring = arg;
    struct rng r = rng_stream(SEED, 0);
    for (size_t i = 0; i < N_RECORDS; i++) {
        size_t size = size_of(&r, ring);
        while (!write_record(ring, i, size)) sched_yield();
    }
    return NULL;
}

static void test_records_pass_between_threads(void **state)
{
    struct ring ring;
    struct rng r = rng_stream(SEED, 0);
    pthread_t writer;
    (void)state;
    assert_int_equal(ring_open(&ring, 2000, NULL), ZP_OK);
    assert_int_equal(pthread_create(&writer, NULL, write_all, &ring), 0);
    for (size_t i = 0; i < N_RECORDS; i++) {
        size_t size = size_of(&r, &ring);
        while (!read_record(&ring, i, size)) sched_yield();
    }
    pthread_join(writer, NULL);
    assert_null(ring_front(&ring));
    ring_free(&ring);
}

/* From any place of the ring: as many as fit, not one more, and room again for what is read. */
static void test_full_ring_takes_no_more_until_something_is_read(void **state)
{
    struct ring ring;
    size_t number = 0;
    (void)state;
    assert_int_equal(ring_open(&ring, 1024, NULL), ZP_OK);
    for (size_t at = 0; at < 200; at++) {
        size_t first = number, n = 0;
        assert_true(write_record(&ring, number++, ring_most(&ring))); /* fits into an empty one */
        assert_true(read_record(&ring, first++, ring_most(&ring)));
        while (write_record(&ring, number, 100)) number++, n++;
        assert_in_range(n, 7, 8); /* of 128 bytes each, with their marks */
        assert_true(read_record(&ring, first++, 100));
        assert_true(read_record(&ring, first++, 100));
        assert_true(write_record(&ring, number++, 60));
        while (first + 1 < number) assert_true(read_record(&ring, first++, 100));
        assert_true(read_record(&ring, first, 60));
        assert_null(ring_front(&ring));
    }
    ring_free(&ring);
}

static void test_memory_is_given_back(void **state)
{
    struct ring ring;
    uint64_t before = live_bytes();
    (void)state;
    assert_int_equal(ring_open(&ring, 5000, NULL), ZP_OK);
    assert_int_equal(live_bytes() - before, 8192);
    ring_free(&ring);
    ring_free(&ring);
    assert_int_equal(live_bytes(), before);
    assert_int_equal(ring_open(&ring, SIZE_MAX, NULL), ZP_USAGE);
    mem_fail_at(1, false);
    assert_int_equal(ring_open(&ring, 5000, NULL), ZP_NO_MEMORY);
    mem_fail_at(0, false);
    assert_int_equal(live_bytes(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_pass_between_threads),
        cmocka_unit_test(test_full_ring_takes_no_more_until_something_is_read),
        cmocka_unit_test(test_memory_is_given_back),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
