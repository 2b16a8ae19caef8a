/* library.c: release of memory, the log's sink, versions and features of this build.
 * Owns: the caller's sink while it is set. */
#include "model/library.h"

#include <jansson.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdatomic.h>
#include <utf8proc.h>
#if defined(ZEROPE_HAVE_CAIRO)
#include <cairo.h>
#endif
#include <zerope/zerope.h>

#include "base/log.h"
#include "kern/kern.h"

void zp_free(void *p)
{
    mem_free(p);
}

/* The public sink takes the level as int; base's takes the enum. */
static void (*_Atomic user_sink)(void *arg, int level, const char *text);

static void pass_on(void *arg, enum log_level level, const char *text)
{
    void (*sink)(void *, int, const char *) = atomic_load(&user_sink);
    if (sink != NULL) sink(arg, (int)level, text);
}

void zp_log_set(void (*sink)(void *arg, int level, const char *text), void *arg, int max_level)
{
    log_set_sink(NULL, NULL, LOG_ERROR);
    atomic_store(&user_sink, sink);
    if (sink == NULL || max_level < LOG_ERROR) return;
    int level = max_level > LOG_DEBUG ? LOG_DEBUG : max_level;
    log_set_sink(pass_on, arg, (enum log_level)level);
}

const char *zp_version(void)
{
    return ZEROPE_VERSION;
}

void library_write_versions(struct json_build *w)
{
    char pcre2[64] = "";
    if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) <= (int)sizeof pcre2)
        pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    json_build_object(w, "libraries");
    json_build_text(w, "pcre2", pcre2);
    json_build_text(w, "utf8proc", utf8proc_version());
    json_build_text(w, "jansson", jansson_version_str());
#if defined(ZEROPE_HAVE_CAIRO)
    json_build_text(w, "cairo", cairo_version_string());
#else
    json_build_null(w, "cairo");
#endif
    json_build_object_end(w);
}

static const char *compiler_name(void)
{
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "unknown";
#endif
}

/* Levels that this build holds, whether or not the processor runs them. */
static void write_levels(struct json_build *w)
{
    json_build_array(w, "levels_built");
    json_build_text(w, NULL, kern_level_name(KERN_REF));
    for (int level = KERN_AVX2; ZP_X86 && level < KERN_LEVEL_COUNT; level++)
        json_build_text(w, NULL, kern_level_name((enum kern_level)level));
    json_build_array_end(w);
    json_build_text(w, "level", kern_level_name(kern_cpu_level()));
}

static void write_features(struct json_build *w)
{
    bool cairo = false, serve = false;
#if defined(ZEROPE_HAVE_CAIRO)
    cairo = true;
#endif
#if defined(ZEROPE_HAVE_SERVE)
    serve = true;
#endif
    json_build_object(w, NULL);
    json_build_text(w, "version", ZEROPE_VERSION);
    json_build_text(w, "compiler", compiler_name());
    library_write_versions(w);
    write_levels(w);
    json_build_object(w, "features");
    json_build_bool(w, "png_pictures", cairo);
    json_build_bool(w, "server", serve);
    json_build_bool(w, "address_sanitizer", ZP_ASAN != 0);
    json_build_object_end(w);
    json_build_object_end(w);
}

zp_status zp_features_json(char **json, zp_err *err)
{
    struct json_build w;
    json_build_open(&w, err);
    write_features(&w);
    return json_build_finish(&w, json);
}
