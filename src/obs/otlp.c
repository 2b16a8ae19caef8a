/* otlp.c: spans of requests, waiting as JSON. Form: opentelemetry-proto 1.x, "JSON Protobuf
 * Encoding": ids in hex, whole numbers of 64 bits as strings, enums as numbers. Names of
 * attributes: OpenTelemetry's semantic conventions for HTTP and generative AI; ours begin with
 * "zerope.".
 * O1 the bytes that wait are at most most_bytes.  O2 a phase begins where the one before ended; one
 * that was not finished ends with its request. */
#include "otlp.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json_build.h"
#include "base/mem.h"

enum span_kind { SPAN_INTERNAL = 1, SPAN_SERVER = 2 };
enum { STATUS_ERROR = 2 };

/* ---- attributes ------------------------------------------------------------------------------ */

static void put_text(struct json_build *w, const char *key, const char *text)
{
    if (text == NULL) return;
    json_build_object(w, NULL);
    json_build_text(w, "key", key);
    json_build_object(w, "value");
    json_build_text(w, "stringValue", text);
    json_build_object_end(w);
    json_build_object_end(w);
}

static void put_decimal(struct json_build *w, const char *key, uint64_t x)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, x);
    json_build_text(w, key, text);
}

static void put_count(struct json_build *w, const char *key, uint64_t x)
{
    json_build_object(w, NULL);
    json_build_text(w, "key", key);
    json_build_object(w, "value");
    put_decimal(w, "intValue", x);
    json_build_object_end(w);
    json_build_object_end(w);
}

/* ---- spans ----------------------------------------------------------------------------------- */

static void put_id(struct json_build *w, const char *key, const uint8_t *id, size_t size)
{
    char hex[33];
    traceparent_hex(id, size, hex);
    json_build_bytes(w, key, hex, 2 * size);
}

static void put_time(struct json_build *w, const struct otlp *o, const char *key, double moment)
{
    int64_t ns = o->unix_zero + (int64_t)(moment * 1e9);
    put_decimal(w, key, ns < 0 ? 0 : (uint64_t)ns);
}

/* The span's object stays open. */
static void begin_span(struct json_build *w, const struct otlp *o, const struct traceparent *t,
                       const uint8_t *parent, enum span_kind kind, double begin, double end)
{
    json_build_object(w, NULL);
    put_id(w, "traceId", t->trace, sizeof t->trace);
    put_id(w, "spanId", t->span, sizeof t->span);
    if (parent != NULL) put_id(w, "parentSpanId", parent, sizeof t->span);
    json_build_int(w, "kind", kind);
    put_time(w, o, "startTimeUnixNano", begin);
    put_time(w, o, "endTimeUnixNano", end);
}

static void put_attributes(struct json_build *w, const struct otlp_request *r)
{
    json_build_array(w, "attributes");
    put_text(w, "http.request.method", r->method);
    put_text(w, "http.route", r->route);
    if (r->status > 0) put_count(w, "http.response.status_code", (uint64_t)r->status);
    put_text(w, "gen_ai.operation.name", r->operation);
    put_text(w, "gen_ai.response.model", r->model);
    put_count(w, "gen_ai.usage.input_tokens", r->n_prompt);
    put_count(w, "gen_ai.usage.output_tokens", r->n_generated);
    put_count(w, "zerope.reused_tokens", r->n_reused);
    put_text(w, "zerope.request_id", r->request_id);
    put_text(w, "zerope.variant", r->variant);
    put_text(w, "zerope.position_mode", r->mode);
    json_build_array_end(w);
}

static void put_request(struct json_build *w, const struct otlp *o, const struct otlp_request *r)
{
    char name[128];
    (void)snprintf(name, sizeof name, "%s %s", r->method == NULL ? "" : r->method,
                   r->route == NULL ? "" : r->route);
    begin_span(w, o, &r->trace, r->parent, SPAN_SERVER, r->arrived, r->ended);
    json_build_text(w, "name", name);
    put_attributes(w, r);
    if (r->error != NULL) {
        json_build_object(w, "status");
        json_build_int(w, "code", STATUS_ERROR);
        json_build_text(w, "message", r->error);
        json_build_object_end(w);
    }
    json_build_object_end(w);
}

/* From begin to end, or to the end of the request if it came no further. */
static size_t put_phase(struct json_build *w, struct otlp *o, const struct otlp_request *r,
                        const char *name, double begin, double end)
{
    if (begin == 0) return 0;
    struct traceparent t = traceparent_child(&r->trace, &o->random);
    begin_span(w, o, &t, r->trace.span, SPAN_INTERNAL, begin, end != 0 ? end : r->ended);
    json_build_text(w, "name", name);
    json_build_object_end(w);
    return 1;
}

static size_t put_spans(struct json_build *w, struct otlp *o, const struct otlp_request *r)
{
    put_request(w, o, r);
    return 1 + put_phase(w, o, r, "accept", r->arrived, r->accepted) +
           put_phase(w, o, r, "queue", r->accepted, r->begun) +
           put_phase(w, o, r, "prefill", r->begun, r->first_token) +
           put_phase(w, o, r, "decode", r->first_token, r->last_token) +
           put_phase(w, o, r, "stream", r->stream, r->ended);
}

void otlp_add(struct otlp *o, const struct otlp_request *r)
{
    struct json_build w;
    char *text;
    if (!r->trace.sampled) return;
    json_build_open(&w, NULL);
    size_t n = put_spans(&w, o, r), before = o->spans.size;
    zp_status status = json_build_finish(&w, &text);
    if (status == ZP_OK && before != 0) status = buffer_append_text(&o->spans, ", ", NULL);
    if (status == ZP_OK) status = buffer_append_text(&o->spans, text, NULL); // O1
    mem_free(text);
    if (status == ZP_OK) {
        o->n_waiting += n;
        return;
    }
    o->spans.size = before;
    if (o->spans.data != NULL) o->spans.data[before] = 0;
    o->n_dropped += n;
}

/* ---- documents ------------------------------------------------------------------------------- */

static zp_status make_resource(struct otlp *o, const struct otlp_options *options, zp_err *err)
{
    struct json_build w;
    json_build_open(&w, err);
    json_build_object(&w, NULL);
    json_build_array(&w, "attributes");
    put_text(&w, "service.name", "zerope");
    put_text(&w, "service.version", options->version);
    put_text(&w, "service.instance.id", options->instance);
    json_build_array_end(&w);
    json_build_object_end(&w);
    return json_build_finish(&w, &o->resource);
}

static zp_status make_scope(struct otlp *o, const struct otlp_options *options, zp_err *err)
{
    struct json_build w;
    json_build_open(&w, err);
    json_build_object(&w, NULL);
    json_build_text(&w, "name", "zerope");
    json_build_text(&w, "version", options->version);
    json_build_object_end(&w);
    return json_build_finish(&w, &o->scope);
}

zp_status otlp_open(struct otlp *o, const struct otlp_options *options, zp_err *err)
{
    size_t most = options->most_bytes == 0 ? (size_t)1 << 20 : options->most_bytes;
    *o = (struct otlp){ .spans = buffer_with_max(MEM_SERVE, most),
                        .random = rng_stream(options->seed, 0) };
    zp_status status = make_resource(o, options, err);
    if (status == ZP_OK) status = make_scope(o, options, err);
    if (status != ZP_OK) otlp_free(o);
    return status;
}

void otlp_free(struct otlp *o)
{
    mem_free(o->resource);
    mem_free(o->scope);
    buffer_free(&o->spans);
    *o = (struct otlp){ 0 };
}

void otlp_set_clock(struct otlp *o, double now, int64_t unix_ns)
{
    o->unix_zero = unix_ns - (int64_t)(now * 1e9);
}

zp_status otlp_take(struct otlp *o, struct buffer *out, size_t *n_spans, zp_err *err)
{
    *n_spans = 0;
    if (o->n_waiting == 0) return ZP_OK;
    ZP_TRY(buffer_printf(out, err,
                         "{\"resourceSpans\": [{\"resource\": %s, \"scopeSpans\": "
                         "[{\"scope\": %s, \"spans\": [%s]}]}]}",
                         o->resource, o->scope, (const char *)o->spans.data));
    *n_spans = o->n_waiting;
    o->n_waiting = 0;
    buffer_clear(&o->spans);
    return ZP_OK;
}
