/* Loops over the bytes of TFRecord files and tf.Examples. `_wire.pyi` says what each of the functions does; the tests
 * compare them with functions in Python.
 *
 * No function reads or writes outside the buffers that it is given, whatever they hold: every length that is read is
 * compared with the bytes that are left before it is used. The interpreter's lock is released around every loop.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

#if PY_BIG_ENDIAN
#error "lengths and checksums are read as little-endian words"
#endif

static uint64_t load64(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

static uint32_t load32(const uint8_t *at) {
    uint32_t word;
    memcpy(&word, at, 4);
    return word;
}

/* CRC-32C (Castagnoli) of frames, by instructions where the processor has them, else by eight tables; and CRC-32, that
   of zlib, of texts. */

#define CRC_POLYNOMIAL 0x82F63B78u
#define TEXT_POLYNOMIAL 0xEDB88320u

typedef uint32_t Tables[8][256];
static Tables crc_tables, text_tables;

static void make_tables(Tables tables, uint32_t polynomial) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (polynomial & (0u - (crc & 1)));
        tables[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int table = 1; table < 8; table++)
            tables[table][i] = tables[table - 1][i] >> 8 ^ tables[0][tables[table - 1][i] & 0xFF];
}

static inline uint32_t crc_with(Tables tables, const uint8_t *at, size_t size) {
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word = load64(at) ^ crc;
        crc = 0;
        for (int table = 0; table < 8; table++)
            crc ^= tables[7 - table][word >> 8 * table & 0xFF];
    }
    for (; size; at++, size--)
        crc = crc >> 8 ^ tables[0][(crc ^ *at) & 0xFF];
    return ~crc;
}

static uint32_t crc_by_tables(const uint8_t *at, size_t size) {
    return crc_with(crc_tables, at, size);
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_by_instructions(const uint8_t *at, size_t size) {
    uint64_t crc = 0xFFFFFFFFu;
    for (; size >= 8; at += 8, size -= 8)
        crc = _mm_crc32_u64(crc, load64(at));
    for (; size; at++, size--)
        crc = _mm_crc32_u8((uint32_t)crc, *at);
    return ~(uint32_t)crc;
}
#elif defined(__ARM_FEATURE_CRC32)
static uint32_t crc_by_instructions(const uint8_t *at, size_t size) {
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= 8; at += 8, size -= 8)
        crc = __crc32cd(crc, load64(at));
    for (; size; at++, size--)
        crc = __crc32cb(crc, *at);
    return ~crc;
}
#endif

static uint32_t (*crc32c)(const uint8_t *, size_t) = crc_by_tables;

static void choose_crc(void) {
    make_tables(crc_tables, CRC_POLYNOMIAL);
    make_tables(text_tables, TEXT_POLYNOMIAL);
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2"))
        crc32c = crc_by_instructions;
#elif defined(__ARM_FEATURE_CRC32)
    crc32c = crc_by_instructions;
#endif
}

/* Checksums are polynomials over GF(2) modulo the checksum's; the highest bit is the coefficient of x^0. */

#define DIGIT_BITS 11
#define DIGITS 3

/* x^8 to the power of each digit of an exponent. */
static uint32_t byte_powers[DIGITS][1 << DIGIT_BITS];

/* So many products at once, which compilers make vectors of. */
#define LANES 16

/* Multiplies each of `ones` by its factor, which is lost. */
static void multiply(uint32_t *restrict ones, uint32_t *restrict factors) {
    uint32_t sums[LANES] = {0};
    for (int bit = 31; bit >= 0; bit--)
        for (int lane = 0; lane < LANES; lane++) {
            sums[lane] ^= factors[lane] & (0u - (ones[lane] >> bit & 1));
            factors[lane] = factors[lane] >> 1 ^ (CRC_POLYNOMIAL & (0u - (factors[lane] & 1)));
        }
    memcpy(ones, sums, sizeof sums);
}

static void make_byte_powers(void) {
    uint32_t base = 1u << 23;
    for (int digit = 0; digit < DIGITS; digit++) {
        uint32_t power = 1u << 31;
        for (int i = 0; i < 1 << DIGIT_BITS; i++) {
            uint32_t next[LANES] = {power}, factors[LANES] = {base};
            byte_powers[digit][i] = power;
            multiply(next, factors);
            power = next[0];
        }
        base = power;
    }
}

static uint32_t masked(uint32_t crc) {
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

/* Arguments. */

typedef struct {
    Py_buffer buffer;
    int64_t *items;
    Py_ssize_t length;
} Numbers;

/* Takes an array of int64. Returns 0, or -1 with an exception. */
static int take_numbers(PyObject *object, int writable, Numbers *numbers) {
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, &numbers->buffer, flags) < 0)
        return -1;
    numbers->items = numbers->buffer.buf;
    numbers->length = numbers->buffer.len / 8;
    const char *format = numbers->buffer.format;
    int is_integer = format != NULL && (!strcmp(format, "l") || !strcmp(format, "q"));
    if (is_integer && numbers->buffer.itemsize == 8 && (uintptr_t)numbers->items % 8 == 0)
        return 0;
    PyBuffer_Release(&numbers->buffer);
    PyErr_SetString(PyExc_ValueError, "an array of int64 is needed");
    return -1;
}

/* Takes bytes and an array of int64, as `format` says. Returns 0, or -1 with an exception. */
static int take_arguments(PyObject *arguments, const char *format, Py_buffer *content, int writable, Numbers *numbers) {
    PyObject *object;
    if (!PyArg_ParseTuple(arguments, format, content, &object))
        return -1;
    if (take_numbers(object, writable, numbers) == 0)
        return 0;
    PyBuffer_Release(content);
    return -1;
}

/* Frames. */

#define HEADER_SIZE 12
#define FOOTER_SIZE 4
/* No file has one; offsets beyond it fit into a word. */
#define LONGEST_RECORD ((uint64_t)1 << 48)

static PyObject *checksum(PyObject *self, PyObject *arguments) {
    Py_buffer content;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "y*", &content))
        return NULL;
    uint32_t crc = crc32c(content.buf, (size_t)content.len);
    PyBuffer_Release(&content);
    return PyLong_FromUnsignedLong(crc);
}

/* For the tests, on processors that have the instructions. */
static PyObject *checksum_by_tables(PyObject *self, PyObject *arguments) {
    Py_buffer content;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "y*", &content))
        return NULL;
    uint32_t crc = crc_by_tables(content.buf, (size_t)content.len);
    PyBuffer_Release(&content);
    return PyLong_FromUnsignedLong(crc);
}

static PyObject *hash_texts(PyObject *self, PyObject *arguments) {
    Py_buffer content;
    PyObject *bounds_object, *hashes_object;
    Numbers bounds, hashes;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "y*OO", &content, &bounds_object, &hashes_object))
        return NULL;
    PyObject *result = NULL;
    if (take_numbers(bounds_object, 0, &bounds) < 0)
        goto release_content;
    if (take_numbers(hashes_object, 1, &hashes) < 0)
        goto release_bounds;
    int fits = hashes.length == (bounds.length ? bounds.length - 1 : 0);
    for (Py_ssize_t i = 0; fits && i < bounds.length; i++)
        fits = bounds.items[i] >= (i ? bounds.items[i - 1] : 0) && bounds.items[i] <= content.len;
    if (fits) {
        const uint8_t *octets = content.buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < hashes.length; i++)
            hashes.items[i] = crc_with(text_tables, octets + bounds.items[i], (size_t)(bounds.items[i + 1] - bounds.items[i]));
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    } else {
        PyErr_SetString(PyExc_ValueError, "the bounds of texts do not ascend within the content");
    }
    PyBuffer_Release(&hashes.buffer);
release_bounds:
    PyBuffer_Release(&bounds.buffer);
release_content:
    PyBuffer_Release(&content);
    return result;
}

static PyObject *follow_frames(PyObject *self, PyObject *arguments) {
    Py_buffer content;
    PyObject *ends_object;
    Numbers ends;
    Py_ssize_t position, stop, count = 0;
    int corrupt = 0;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "y*nnO", &content, &position, &stop, &ends_object))
        return NULL;
    if (take_numbers(ends_object, 1, &ends) < 0) {
        PyBuffer_Release(&content);
        return NULL;
    }
    if (position < 0 || stop < 0 || stop > content.len) {
        PyErr_SetString(PyExc_ValueError, "offsets beyond the content");
    } else {
        const uint8_t *octets = content.buf;
        Py_BEGIN_ALLOW_THREADS
        while (count < ends.length && stop - position >= HEADER_SIZE) {
            const uint8_t *header = octets + position;
            if (masked(crc32c(header, 8)) != load32(header + 8)) {
                corrupt = 1;
                break;
            }
            uint64_t size = load64(header), left = (uint64_t)(stop - position - HEADER_SIZE);
            if (left < FOOTER_SIZE || size > left - FOOTER_SIZE)
                break;
            const uint8_t *record = header + HEADER_SIZE;
            if (masked(crc32c(record, size)) != load32(record + size)) {
                corrupt = 1;
                break;
            }
            position += HEADER_SIZE + (Py_ssize_t)size + FOOTER_SIZE;
            ends.items[count++] = position;
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&ends.buffer);
    PyBuffer_Release(&content);
    return PyErr_Occurred() ? NULL : Py_BuildValue("nO", count, corrupt ? Py_True : Py_False);
}

static PyObject *skim_frames(PyObject *self, PyObject *arguments) {
    Py_buffer content;
    Numbers starts;
    Py_ssize_t count = 0, position = 0;
    int corrupt = 0;
    (void)self;
    if (take_arguments(arguments, "y*O", &content, 1, &starts) < 0)
        return NULL;
    const uint8_t *octets = content.buf;
    Py_BEGIN_ALLOW_THREADS
    while (count < starts.length && position <= content.len - HEADER_SIZE) {
        uint64_t size = load64(octets + position);
        corrupt = masked(crc32c(octets + position, 8)) != load32(octets + position + 8) || size >= LONGEST_RECORD;
        if (corrupt)
            break;
        starts.items[count++] = position;
        position += HEADER_SIZE + (Py_ssize_t)size + FOOTER_SIZE;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&starts.buffer);
    PyBuffer_Release(&content);
    return Py_BuildValue("nnO", count, position, corrupt ? Py_True : Py_False);
}

static PyObject *frame(PyObject *self, PyObject *records_object) {
    (void)self;
    /* A tuple keeps the records alive while the lock is released, whatever becomes of the list. */
    PyObject *records = PySequence_Tuple(records_object), *framed = NULL;
    if (records == NULL)
        return NULL;
    Py_ssize_t count = PyTuple_Size(records), total = 0;
    /* Contents and sizes are looked up first: no function of Python's is called without the lock. */
    struct Text {
        char *octets;
        Py_ssize_t size;
    } *texts = calloc((size_t)count + 1, sizeof(struct Text));
    if (texts == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *record = PyTuple_GetItem(records, i);
        if (!PyBytes_Check(record)) {
            PyErr_SetString(PyExc_TypeError, "records are bytes");
            goto done;
        }
        if (PyBytes_AsStringAndSize(record, &texts[i].octets, &texts[i].size) < 0)
            goto done;
        if (texts[i].size > PY_SSIZE_T_MAX - total - HEADER_SIZE - FOOTER_SIZE) {
            PyErr_NoMemory();
            goto done;
        }
        total += HEADER_SIZE + texts[i].size + FOOTER_SIZE;
    }
    framed = PyBytes_FromStringAndSize(NULL, total);
    if (framed == NULL)
        goto done;
    uint8_t *at = (uint8_t *)PyBytes_AsString(framed);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) {
        uint64_t size = (uint64_t)texts[i].size;
        memcpy(at, &size, 8);
        uint32_t check = masked(crc32c(at, 8));
        memcpy(at + 8, &check, 4);
        memcpy(at + HEADER_SIZE, texts[i].octets, size);
        check = masked(crc32c(at + HEADER_SIZE, size));
        memcpy(at + HEADER_SIZE + size, &check, 4);
        at += HEADER_SIZE + size + FOOTER_SIZE;
    }
    Py_END_ALLOW_THREADS
done:
    free(texts);
    Py_DECREF(records);
    return framed;
}

static PyObject *write_footers(PyObject *self, PyObject *arguments) {
    Py_buffer content;
    Numbers bounds;
    int good = 1;
    (void)self;
    if (take_arguments(arguments, "w*O", &content, 0, &bounds) < 0)
        return NULL;
    uint8_t *octets = content.buf;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; good && i + 1 < bounds.length; i++) {
        int64_t start = bounds.items[i], stop = bounds.items[i + 1];
        /* Of numbers that are not negative, the difference is one. */
        good = start >= 0 && stop >= 0 && stop <= content.len && stop - start >= HEADER_SIZE + FOOTER_SIZE;
        if (good) {
            size_t size = (size_t)(stop - start - HEADER_SIZE - FOOTER_SIZE);
            uint32_t check = masked(crc32c(octets + start + HEADER_SIZE, size));
            memcpy(octets + stop - FOOTER_SIZE, &check, 4);
        }
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&bounds.buffer);
    PyBuffer_Release(&content);
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "bounds beyond the content");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Multiplies up to LANES checksums by x^8 to the power of their counts. Returns 0 if a count is out of range. */
static int shift_lanes(uint32_t *checksums, const int64_t *counts, Py_ssize_t length) {
    uint32_t ones[LANES] = {0}, factors[LANES];
    uint64_t all = 0;
    for (Py_ssize_t lane = 0; lane < length; lane++)
        all |= (uint64_t)counts[lane];
    if (all >> DIGIT_BITS * DIGITS)
        return 0;
    memcpy(ones, checksums, (size_t)length * sizeof *ones);
    for (int digit = 0; digit < DIGITS && all >> DIGIT_BITS * digit; digit++) {
        for (Py_ssize_t lane = 0; lane < LANES; lane++) {
            uint64_t count = lane < length ? (uint64_t)counts[lane] : 0;
            factors[lane] = byte_powers[digit][count >> DIGIT_BITS * digit & ((1 << DIGIT_BITS) - 1)];
        }
        multiply(ones, factors);
    }
    memcpy(checksums, ones, (size_t)length * sizeof *ones);
    return 1;
}

static PyObject *shift_checksums(PyObject *self, PyObject *arguments) {
    Py_buffer checksums;
    Numbers counts;
    int good = 1;
    (void)self;
    if (take_arguments(arguments, "w*O", &checksums, 0, &counts) < 0)
        return NULL;
    if (checksums.itemsize != 4 || checksums.len / 4 != counts.length || (uintptr_t)checksums.buf % 4) {
        PyErr_SetString(PyExc_ValueError, "as many counts as checksums are needed");
    } else {
        uint32_t *items = checksums.buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; good && i < counts.length; i += LANES) {
            Py_ssize_t left = counts.length - i;
            good = shift_lanes(items + i, counts.items + i, left < LANES ? left : LANES);
        }
        Py_END_ALLOW_THREADS
        if (!good)
            PyErr_SetString(PyExc_ValueError, "counts are from 0 to 2^33 - 1");
    }
    PyBuffer_Release(&counts.buffer);
    PyBuffer_Release(&checksums);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* tf.Examples. */

enum { BYTES = 0x0A, FLOAT = 0x12, INT64 = 0x1A };

#define ITEMS 0x0A
#define VALUE 0x12
#define UNPACKED_FLOAT 0x0D
#define UNPACKED_INT64 0x08
#define LONGEST_VARINT 10
#define HIGH_BITS 0x8080808080808080u
/* So many records in a row may leave the order of the one before. */
#define MOST_LEFT 16

/* Columns of an entry, in the order of `example_values.Entries`. */
enum { ROW, HASH, NAME, NAME_STOP, LIST, KIND, START, STOP, COLUMNS };

/* Key of SipHash, which is drawn for each process: names in a file cannot be chosen so that their hashes are equal. */
typedef struct {
    uint64_t words[2];
} Seed;

typedef struct {
    uint64_t hash;
    const uint8_t *key;
    int64_t size;
    uint64_t record;
} Slot;

/* Map entry of a record before. */
typedef struct {
    /* Offsets, as in `COLUMNS`; `at` is that of the entry's first byte. */
    int64_t at, name, name_stop, list, start, stop;
    uint64_t hash;
    /* Number of its key among the names that are wanted, or how many these are. */
    Py_ssize_t wanted;
    int kind, single;
} Entry;

typedef struct {
    const uint8_t *octets, *limit;
    Seed seed;
    /* Names that are wanted. */
    Py_ssize_t names;
    const char **name;
    Py_ssize_t *name_size;
    uint64_t *name_hash;
    /* Their numbers in an open hash table of name_mask + 1 slots, more than there are names; `names` where it is empty. */
    Py_ssize_t *name_slots;
    uint64_t name_mask;
    /* Keys of the present record, in an open hash table; slots of other records count as empty. */
    Slot *slots;
    uint64_t slot_bits, keys, record;
    /* Entries of a record before, of different keys in UTF-8: many records have the same keys in the same order. */
    Entry *order;
    size_t known, order_room;
    /* Records in a row that left the order. After more than MOST_LEFT, none is learned. */
    int left;
    /* Entries that were listed. */
    int listing;
    int64_t *entries;
    size_t listed, room;
    int no_memory;
} Walk;

/* Reads a tag of one byte and a minimal length. Returns the tag, -1 if they are not well formed; the content begins at
 * *begin and ends at *end, which is at most stop. */
static int read_field(const uint8_t *octets, int64_t at, int64_t stop, int64_t *begin, int64_t *end) {
    if (stop - at < 2)
        return -1;
    int tag = octets[at++];
    uint64_t length = octets[at++];
    if (length & 0x80) {
        length &= 0x7F;
        for (int shift = 7;; shift += 7) {
            if (at == stop || shift > 28)
                return -1;
            uint64_t octet = octets[at++];
            length |= (octet & 0x7F) << shift;
            if (octet < 0x80) {
                /* The last byte of a minimal varint is not zero. */
                if (octet == 0)
                    return -1;
                break;
            }
        }
    }
    if (length > (uint64_t)(stop - at))
        return -1;
    *begin = at;
    *end = at + (int64_t)length;
    return tag;
}

static int is_utf8(const uint8_t *at, int64_t size) {
    const uint8_t *stop = at + size;
    while (at < stop) {
        uint8_t first = *at++;
        if (first < 0x80)
            continue;
        int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
        if (first < 0xC2 || first > 0xF4 || stop - at < more || (*at & 0xC0) != 0x80)
            return 0;
        /* No number is written in more bytes than it needs, none is a surrogate, and none is above U+10FFFF. */
        if ((first == 0xE0 && *at < 0xA0) || (first == 0xED && *at > 0x9F) || (first == 0xF0 && *at < 0x90) ||
            (first == 0xF4 && *at > 0x8F))
            return 0;
        for (at++; --more; at++)
            if ((*at & 0xC0) != 0x80)
                return 0;
    }
    return 1;
}

#define ROTATED(word, by) ((word) << (by) | (word) >> (64 - (by)))

static inline __attribute__((always_inline)) void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = ROTATED(v[1], 13) ^ v[0];
    v[3] = ROTATED(v[3], 16) ^ v[2];
    v[0] = ROTATED(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = ROTATED(v[1], 17) ^ v[2];
    v[3] = ROTATED(v[3], 21) ^ v[0];
    v[2] = ROTATED(v[2], 32);
}

/* SipHash-1-3 of a key, and the union of its words. Where words may be loaded up to `limit`, the key's last one is one
 * load. */
static uint64_t hash_of(Seed seed, const uint8_t *at, int64_t size, const uint8_t *limit, uint64_t *bits) {
    uint64_t v[4] = {
        seed.words[0] ^ 0x736F6D6570736575u, seed.words[1] ^ 0x646F72616E646F6Du,
        seed.words[0] ^ 0x6C7967656E657261u, seed.words[1] ^ 0x7465646279746573u,
    };
    uint64_t last = (uint64_t)size << 56, all = 0;
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word = load64(at);
        all |= word;
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    if (size) {
        uint64_t word = 0;
        if (limit - at >= 8)
            word = load64(at) & (((uint64_t)1 << 8 * size) - 1);
        else
            memcpy(&word, at, (size_t)size);
        all |= word;
        last |= word;
    }
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xFF;
    for (int round = 0; round < 3; round++)
        sip_round(v);
    *bits = all;
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static int64_t count_varints(const uint8_t *octets, int64_t at, int64_t stop) {
    int64_t count = 0;
    while (at < stop) {
        int64_t last = stop - at < LONGEST_VARINT ? stop : at + LONGEST_VARINT;
        while (at < last && octets[at] >= 0x80)
            at++;
        if (at == last)
            return -1;
        at++;
        count++;
    }
    return count;
}

/* Reads the content of a Feature. Returns 0 if it is not canonical; else *kind is that of its values, *start where they
 * begin, and *single whether there is one. */
static int read_list(const uint8_t *octets, int64_t at, int64_t stop, int *kind, int64_t *start, int *single) {
    int64_t items, end, begin;
    *kind = 0;
    *start = stop;
    *single = 0;
    if (at == stop)
        return 1;
    int found = read_field(octets, at, stop, &items, &end);
    if (end != stop || (found != BYTES && found != FLOAT && found != INT64))
        return 0;
    if (items == stop)
        return 1;
    if (found == FLOAT && octets[items] == UNPACKED_FLOAT) {
        begin = items + 1;
        if (stop - begin != 4)
            return 0;
    } else if (found == INT64 && octets[items] == UNPACKED_INT64) {
        begin = items + 1;
        if (count_varints(octets, begin, stop) != 1)
            return 0;
    } else {
        if (read_field(octets, items, stop, &begin, &end) != ITEMS)
            return 0;
        if (found == BYTES && end < stop) {
            while (end < stop)
                if (read_field(octets, end, stop, &items, &end) != ITEMS)
                    return 0;
            return 1;
        }
        if (end != stop)
            return 0;
    }
    *kind = found;
    *start = begin;
    if (found == BYTES) {
        *single = 1;
    } else if (found == FLOAT) {
        if ((stop - begin) % 4)
            return 0;
        *single = stop - begin == 4;
    } else {
        int64_t count = count_varints(octets, begin, stop);
        if (count < 0)
            return 0;
        *single = count == 1;
    }
    return 1;
}

static int grow_slots(Walk *walk) {
    uint64_t bits = walk->slot_bits + 1, mask = ((uint64_t)1 << bits) - 1;
    Slot *slots = calloc((size_t)1 << bits, sizeof(Slot));
    if (slots == NULL)
        return 0;
    for (uint64_t i = 0; walk->slots != NULL && i < (uint64_t)1 << walk->slot_bits; i++) {
        if (walk->slots[i].record == walk->record) {
            uint64_t place = walk->slots[i].hash >> 20;
            while (slots[place & mask].record)
                place++;
            slots[place & mask] = walk->slots[i];
        }
    }
    free(walk->slots);
    walk->slots = slots;
    walk->slot_bits = bits;
    return 1;
}

/* Adds a key of the present record. Returns 0 if the record has it already. */
static inline __attribute__((always_inline)) int add_key(Walk *walk, uint64_t hash, const uint8_t *key, int64_t size) {
    if (4 * ++walk->keys > (uint64_t)1 << walk->slot_bits && !grow_slots(walk)) {
        walk->no_memory = 1;
        return 0;
    }
    uint64_t mask = ((uint64_t)1 << walk->slot_bits) - 1, place = hash >> 20;
    for (;; place++) {
        Slot *slot = &walk->slots[place & mask];
        if (slot->record != walk->record) {
            *slot = (Slot){hash, key, size, walk->record};
            return 1;
        }
        if (slot->hash == hash && slot->size == size && !memcmp(slot->key, key, (size_t)size))
            return 0;
    }
}

/* Words are masked once for both: masked by themselves, as in `hash_of`, they take a fifth more time a record. */
static int same_bytes(const uint8_t *one, const uint8_t *other, int64_t size, const uint8_t *limit) {
    for (; size > 0; one += 8, other += 8, size -= 8) {
        if (limit - one < 8 || limit - other < 8)
            return !memcmp(one, other, (size_t)size);
        uint64_t differing = load64(one) ^ load64(other);
        if (size < 8)
            differing &= ((uint64_t)1 << 8 * size) - 1;
        if (differing)
            return 0;
    }
    return 1;
}

/* The number of a key among the names that are wanted, or how many these are. */
static Py_ssize_t number_of(const Walk *walk, uint64_t hash, const uint8_t *key, int64_t size) {
    for (uint64_t place = hash >> 20;; place++) {
        Py_ssize_t number = walk->name_slots[place & walk->name_mask];
        if (number == walk->names || (walk->name_hash[number] == hash && walk->name_size[number] == size &&
                                      !memcmp(walk->name[number], key, (size_t)size)))
            return number;
    }
}

/* Fills the table of the names that are wanted. Returns 0 without memory. */
static int make_name_slots(Walk *walk) {
    /* Many: of a few names that are wanted, most keys of a record then meet an empty slot. */
    uint64_t slots = 64;
    while (slots < 8 * (uint64_t)walk->names)
        slots *= 2;
    walk->name_slots = calloc(slots, sizeof(Py_ssize_t));
    if (walk->name_slots == NULL)
        return 0;
    walk->name_mask = slots - 1;
    for (uint64_t i = 0; i < slots; i++)
        walk->name_slots[i] = walk->names;
    for (Py_ssize_t i = 0; i < walk->names; i++) {
        uint64_t place = walk->name_hash[i] >> 20;
        while (walk->name_slots[place & walk->name_mask] != walk->names)
            place++;
        walk->name_slots[place & walk->name_mask] = i;
    }
    return 1;
}

/* Makes room for another item. Returns the items, which may have moved; NULL without memory, and they stay. */
static void *with_room(Walk *walk, void *items, size_t used, size_t *room, size_t size) {
    if (used < *room)
        return items;
    size_t more = *room ? 2 * *room : 64;
    void *grown = realloc(items, more * size);
    if (grown == NULL)
        walk->no_memory = 1;
    else
        *room = more;
    return grown;
}

/* Adds an entry to the order. */
static int learn_entry(Walk *walk, const Entry *entry) {
    Entry *order = with_room(walk, walk->order, walk->known, &walk->order_room, sizeof(Entry));
    if (order == NULL)
        return 0;
    walk->order = order;
    walk->order[walk->known++] = *entry;
    return 1;
}

/* Leaves the order of the record before: only the first keys are those of the present record. */
static int leave_order(Walk *walk, size_t kept) {
    walk->record++;
    walk->keys = 0;
    for (size_t i = 0; i < kept; i++) {
        const Entry *entry = &walk->order[i];
        if (!add_key(walk, entry->hash, walk->octets + entry->name, entry->name_stop - entry->name))
            return 0;
    }
    walk->known = ++walk->left > MOST_LEFT ? 0 : kept;
    return 1;
}

static int list_entry(Walk *walk, const int64_t *entry) {
    int64_t *entries = with_room(walk, walk->entries, walk->listed, &walk->room, COLUMNS * sizeof(int64_t));
    if (entries == NULL)
        return 0;
    walk->entries = entries;
    memcpy(walk->entries + COLUMNS * walk->listed++, entry, COLUMNS * sizeof(int64_t));
    return 1;
}

/* Reads the entry at `at`. Returns whether it is canonical. */
static int read_entry(const uint8_t *octets, int64_t at, int64_t stop, Entry *entry) {
    int64_t begin, list_stop;
    entry->at = at;
    if (read_field(octets, at, stop, &begin, &entry->stop) != ITEMS)
        return 0;
    if (read_field(octets, begin, entry->stop, &entry->name, &entry->name_stop) != ITEMS)
        return 0;
    if (read_field(octets, entry->name_stop, entry->stop, &entry->list, &list_stop) != VALUE || list_stop != entry->stop)
        return 0;
    return read_list(octets, entry->list, entry->stop, &entry->kind, &entry->start, &entry->single);
}

/* Reads a record. Returns whether it is canonical; found holds kinds, starts and stops of n records for each name. */
static int read_record(Walk *walk, Py_ssize_t row, Py_ssize_t n, int64_t at, int64_t stop, int64_t *found) {
    const uint8_t *octets = walk->octets;
    int64_t begin, end;
    int follows = 1;
    if (at == stop)
        return 1;
    if (read_field(octets, at, stop, &begin, &end) != ITEMS || end != stop)
        return 0;
    at = begin;
    for (size_t place = 0; at < stop; place++) {
        Entry *before = follows && place < walk->known ? &walk->order[place] : NULL, own;
        const Entry *entry = before;
        /* With the same bytes before its values, and as long, it differs in values only: those of integers are read. */
        if (before == NULL || before->kind == INT64 || stop - at < before->stop - before->at ||
            !same_bytes(octets + at, octets + before->at, before->start - before->at, walk->limit)) {
            if (!read_entry(octets, at, stop, &own))
                return 0;
            const uint8_t *key = octets + own.name;
            int64_t size = own.name_stop - own.name;
            if (before != NULL && before->name_stop - before->name == size &&
                same_bytes(key, octets + before->name, size, walk->limit)) {
                own.hash = before->hash;
                own.wanted = before->wanted;
                if (own.kind != INT64)
                    *before = own;
            } else {
                if (follows && !leave_order(walk, place))
                    return 0;
                follows = 0;
                uint64_t bits;
                own.hash = hash_of(walk->seed, key, size, walk->limit, &bits);
                if ((bits & HIGH_BITS && !is_utf8(key, size)) || !add_key(walk, own.hash, key, size))
                    return 0;
                own.wanted = number_of(walk, own.hash, key, size);
                if (walk->left <= MOST_LEFT && !learn_entry(walk, &own))
                    return 0;
            }
            entry = &own;
        }
        int64_t shift = at - entry->at;
        if (entry->wanted < walk->names) {
            int64_t *values = found + 3 * entry->wanted * n + row;
            values[0] = entry->single ? entry->kind : -1;
            values[n] = entry->start + shift;
            values[2 * n] = entry->stop + shift;
        }
        if (walk->listing) {
            int64_t columns[COLUMNS] = {
                row, (int64_t)entry->hash, entry->name + shift, entry->name_stop + shift,
                entry->list + shift, entry->kind, entry->start + shift, entry->stop + shift,
            };
            if (!list_entry(walk, columns))
                return 0;
        }
        at = entry->stop + shift;
    }
    if (follows)
        walk->left = 0;
    return 1;
}

static int read_records(Walk *walk, int64_t size, Numbers starts, Numbers stops, uint8_t *canonical, int64_t *found) {
    Py_ssize_t n = starts.length;
    if (!grow_slots(walk))
        return 0;
    for (Py_ssize_t row = 0; row < n; row++) {
        int64_t start = starts.items[row], stop = stops.items[row];
        size_t listed = walk->listed;
        canonical[row] = start >= 0 && start <= stop && stop <= size && read_record(walk, row, n, start, stop, found);
        if (walk->no_memory)
            return 0;
        if (!canonical[row]) {
            walk->listed = listed;
            for (Py_ssize_t i = 0; i < walk->names; i++)
                for (int column = 0; column < 3; column++)
                    found[(3 * i + column) * n + row] = 0;
        }
    }
    return 1;
}

static PyObject *walk_examples(PyObject *self, PyObject *arguments) {
    Py_buffer content, canonical = {0};
    PyObject *starts_object, *stops_object, *names, *found_object, *result = NULL;
    Numbers starts = {0}, stops = {0}, found = {0};
    const char *seed;
    Py_ssize_t seed_size, positions;
    Walk walk = {.slot_bits = 6};
    int done = 0;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "y*OOO!w*Opy#", &content, &starts_object, &stops_object, &PyTuple_Type, &names,
                          &canonical, &found_object, &walk.listing, &seed, &seed_size))
        return NULL;
    if (take_numbers(starts_object, 0, &starts) < 0 || take_numbers(stops_object, 0, &stops) < 0 ||
        take_numbers(found_object, 1, &found) < 0)
        goto release;
    walk.octets = content.buf;
    walk.limit = walk.octets + content.len;
    walk.names = PyTuple_Size(names);
    if (stops.length != starts.length || canonical.itemsize != 1 || canonical.len != starts.length ||
        __builtin_mul_overflow(3 * walk.names, starts.length, &positions) || found.length != positions) {
        PyErr_SetString(PyExc_ValueError, "arrays differ in length");
        goto release;
    }
    if (seed_size != sizeof walk.seed) {
        PyErr_SetString(PyExc_ValueError, "a seed has 16 bytes");
        goto release;
    }
    memcpy(&walk.seed, seed, sizeof walk.seed);
    walk.name = calloc((size_t)walk.names + 1, sizeof(char *));
    walk.name_size = calloc((size_t)walk.names + 1, sizeof(Py_ssize_t));
    walk.name_hash = calloc((size_t)walk.names + 1, sizeof(uint64_t));
    if (walk.name == NULL || walk.name_size == NULL || walk.name_hash == NULL) {
        PyErr_NoMemory();
        goto release;
    }
    for (Py_ssize_t i = 0; i < walk.names; i++) {
        char *name;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(names, i), &name, &walk.name_size[i]) < 0)
            goto release;
        walk.name[i] = name;
        uint64_t bits;
        walk.name_hash[i] = hash_of(walk.seed, (const uint8_t *)name, walk.name_size[i], (const uint8_t *)name, &bits);
    }
    if (!make_name_slots(&walk)) {
        PyErr_NoMemory();
        goto release;
    }
    Py_BEGIN_ALLOW_THREADS
    done = read_records(&walk, content.len, starts, stops, canonical.buf, found.items);
    Py_END_ALLOW_THREADS
    if (!done)
        PyErr_NoMemory();
    else
        result = PyBytes_FromStringAndSize((const char *)walk.entries,
                                           (Py_ssize_t)(walk.listed * COLUMNS * sizeof(int64_t)));
release:
    free(walk.name);
    free(walk.name_size);
    free(walk.name_hash);
    free(walk.name_slots);
    free(walk.slots);
    free(walk.order);
    free(walk.entries);
    PyBuffer_Release(&found.buffer);
    PyBuffer_Release(&stops.buffer);
    PyBuffer_Release(&starts.buffer);
    PyBuffer_Release(&canonical);
    PyBuffer_Release(&content);
    return result;
}

/* A name that is dropped. */
typedef struct {
    char *octets;
    Py_ssize_t size;
} Name;

/* Copies a frame without the entries of some names. Returns the bytes that it takes, -1 if its record is not canonical.
 * It never becomes longer. */
static int64_t copy_kept(const uint8_t *octets, int64_t start, int64_t stop, const Name *names, Py_ssize_t count,
                         uint8_t *made) {
    int64_t at = start + HEADER_SIZE, end = stop - FOOTER_SIZE, begin = end, entry, name, name_stop;
    if (end > at && (read_field(octets, at, end, &begin, &entry) != ITEMS || entry != end))
        return -1;
    /* Room for tag and length as they were. */
    uint8_t *record = made + HEADER_SIZE, *first = record + (begin - at), *next = first;
    for (at = begin; at < end; at = entry) {
        int64_t key;
        if (read_field(octets, at, end, &key, &entry) != ITEMS || read_field(octets, key, entry, &name, &name_stop) != ITEMS)
            return -1;
        int dropped = 0;
        for (Py_ssize_t i = 0; i < count && !dropped; i++)
            dropped = names[i].size == name_stop - name && !memcmp(names[i].octets, octets + name, (size_t)names[i].size);
        if (!dropped) {
            memcpy(next, octets + at, (size_t)(entry - at));
            next += entry - at;
        }
    }
    uint64_t kept = (uint64_t)(next - first), size = 0;
    if (kept) {
        record[size++] = ITEMS;
        uint64_t rest = kept;
        for (; rest >= 0x80; rest >>= 7)
            record[size++] = (uint8_t)(rest | 0x80);
        record[size++] = (uint8_t)rest;
        /* A shorter length: the entries move up. */
        memmove(record + size, first, kept);
        size += kept;
    }
    memcpy(made, &size, 8);
    uint32_t check = masked(crc32c(made, 8));
    memcpy(made + 8, &check, 4);
    check = masked(crc32c(record, size));
    memcpy(record + size, &check, 4);
    return HEADER_SIZE + (int64_t)size + FOOTER_SIZE;
}

static PyObject *drop_entries(PyObject *self, PyObject *arguments) {
    Py_buffer content;
    PyObject *bounds_object, *names_object, *ends_object, *result = NULL;
    Numbers bounds = {0}, ends = {0};
    uint8_t *made = NULL;
    int64_t size = 0;
    int good = 1;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "y*OO!O", &content, &bounds_object, &PyTuple_Type, &names_object, &ends_object))
        return NULL;
    Py_ssize_t count = PyTuple_Size(names_object);
    Name *names = calloc((size_t)count + 1, sizeof(Name));
    if (names == NULL) {
        PyErr_NoMemory();
        goto release;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(names_object, i), &names[i].octets, &names[i].size) < 0)
            goto release;
    if (take_numbers(bounds_object, 0, &bounds) < 0 || take_numbers(ends_object, 1, &ends) < 0)
        goto release;
    if (bounds.length != ends.length || !bounds.length) {
        PyErr_SetString(PyExc_ValueError, "arrays differ in length, or are empty");
        goto release;
    }
    const uint8_t *octets = content.buf;
    for (Py_ssize_t i = 0; good && i < bounds.length; i++) {
        int64_t start = i ? bounds.items[i - 1] + HEADER_SIZE + FOOTER_SIZE : 0;
        good = start >= 0 && bounds.items[i] >= start && bounds.items[i] <= content.len;
    }
    made = malloc((size_t)content.len + 1);
    if (made == NULL) {
        PyErr_NoMemory();
        goto release;
    }
    Py_BEGIN_ALLOW_THREADS
    ends.items[0] = 0;
    for (Py_ssize_t i = 0; good && i + 1 < bounds.length; i++) {
        int64_t taken = copy_kept(octets, bounds.items[i], bounds.items[i + 1], names, count, made + size);
        good = taken >= 0;
        size += good ? taken : 0;
        ends.items[i + 1] = size;
    }
    Py_END_ALLOW_THREADS
    if (good)
        result = PyBytes_FromStringAndSize((const char *)made, (Py_ssize_t)size);
    else
        PyErr_SetString(PyExc_ValueError, "the frames do not hold canonical records");
release:
    free(names);
    free(made);
    PyBuffer_Release(&ends.buffer);
    PyBuffer_Release(&bounds.buffer);
    PyBuffer_Release(&content);
    return result;
}

/* Values at places of the content, and an array for the results. */
typedef struct {
    Py_buffer content;
    Numbers starts, stops, results;
} Places;

static void release_places(Places *places) {
    PyBuffer_Release(&places->results.buffer);
    PyBuffer_Release(&places->stops.buffer);
    PyBuffer_Release(&places->starts.buffer);
    PyBuffer_Release(&places->content);
}

/* Takes the content, as many starts as stops, and an array of `more` results than these. Returns 0, or -1 with an
 * exception. */
static int take_places(PyObject *arguments, Py_ssize_t more, Places *places) {
    PyObject *starts, *stops, *results;
    *places = (Places){0};
    if (!PyArg_ParseTuple(arguments, "y*OOO", &places->content, &starts, &stops, &results))
        return -1;
    if (take_numbers(starts, 0, &places->starts) == 0 && take_numbers(stops, 0, &places->stops) == 0 &&
        take_numbers(results, 1, &places->results) == 0) {
        Py_ssize_t n = places->starts.length;
        if (places->stops.length == n && places->results.length == n + more)
            return 0;
        PyErr_SetString(PyExc_ValueError, "arrays differ in length");
    }
    release_places(places);
    return -1;
}

/* Whether the value of a row lies within the content and is not longer than `most`. */
static int is_within(const Places *places, Py_ssize_t row, int64_t most) {
    int64_t start = places->starts.items[row], stop = places->stops.items[row];
    return start >= 0 && start <= stop && stop <= places->content.len && stop - start <= most;
}

static PyObject *read_varints(PyObject *self, PyObject *arguments) {
    Places places;
    int good = 1;
    (void)self;
    if (take_places(arguments, 0, &places) < 0)
        return NULL;
    const uint8_t *octets = places.content.buf;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t row = 0; good && row < places.starts.length; row++) {
        good = is_within(&places, row, LONGEST_VARINT);
        uint64_t number = 0;
        if (good) {
            const uint8_t *at = octets + places.starts.items[row], *stop = octets + places.stops.items[row];
            for (int shift = 0; at < stop; at++, shift += 7)
                number |= (uint64_t)(*at & 0x7F) << shift;
        }
        memcpy(&places.results.items[row], &number, sizeof number);
    }
    Py_END_ALLOW_THREADS
    release_places(&places);
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "varints beyond the content");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *join_texts(PyObject *self, PyObject *arguments) {
    Places places;
    PyObject *joined = NULL;
    int good = 1;
    int64_t total = 0;
    (void)self;
    if (take_places(arguments, 1, &places) < 0)
        return NULL;
    Py_ssize_t n = places.starts.length;
    int64_t *bounds = places.results.items;
    bounds[0] = 0;
    for (Py_ssize_t row = 0; good && row < n; row++) {
        /* Texts may overlap, so that all are longer than the content. */
        good = is_within(&places, row, INT64_MAX) &&
               !__builtin_add_overflow(total, places.stops.items[row] - places.starts.items[row], &total);
        bounds[row + 1] = total;
    }
    if (!good)
        PyErr_SetString(PyExc_ValueError, "texts beyond the content");
    else
        joined = PyBytes_FromStringAndSize(NULL, total);
    if (joined != NULL) {
        const uint8_t *octets = places.content.buf;
        char *at = PyBytes_AsString(joined);
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t row = 0; row < n; row++)
            memcpy(at + bounds[row], octets + places.starts.items[row], (size_t)(bounds[row + 1] - bounds[row]));
        Py_END_ALLOW_THREADS
    }
    release_places(&places);
    return joined;
}

static PyMethodDef METHODS[] = {
    {"crc32c", checksum, METH_VARARGS, "See _wire.pyi."},
    {"crc32c_by_tables", checksum_by_tables, METH_VARARGS, "See _wire.pyi."},
    {"follow_frames", follow_frames, METH_VARARGS, "See _wire.pyi."},
    {"skim_frames", skim_frames, METH_VARARGS, "See _wire.pyi."},
    {"frame", frame, METH_O, "See _wire.pyi."},
    {"hash_texts", hash_texts, METH_VARARGS, "See _wire.pyi."},
    {"write_footers", write_footers, METH_VARARGS, "See _wire.pyi."},
    {"shift_checksums", shift_checksums, METH_VARARGS, "See _wire.pyi."},
    {"walk_examples", walk_examples, METH_VARARGS, "See _wire.pyi."},
    {"drop_entries", drop_entries, METH_VARARGS, "See _wire.pyi."},
    {"read_varints", read_varints, METH_VARARGS, "See _wire.pyi."},
    {"join_texts", join_texts, METH_VARARGS, "See _wire.pyi."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_wire", NULL, -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__wire(void) {
    choose_crc();
    make_byte_powers();
    return PyModule_Create(&MODULE);
}
