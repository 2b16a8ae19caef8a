/* serveoptions.c: stages, promises and salts out of texts. No state. */
#include "serve/serveoptions.h"

#include <math.h>
#include <string.h>
#include <sys/random.h>

#include "base/bytes.h"
#include "base/numtext.h"

/* A number from 0 on at *at, which goes behind it; false: there is none. */
static bool read_number(const char **at, double *out)
{
    char *end;
    *out = numtext_double(*at, &end);
    bool good = end != *at && isfinite(*out) && *out >= 0;
    *at = end;
    return good;
}

zp_status serveoptions_stages(const char *text, struct canary_options *out, zp_err *err)
{
    const char *at = text;
    out->n_stages = 0;
    for (bool more = true; more;) {
        double percent;
        bool good = read_number(&at, &percent) && percent <= 100 &&
                    out->n_stages < CANARY_MOST_STAGES;
        ZP_FAIL_IF(!good || (*at != ',' && *at != '\0'), err, ZP_USAGE,
                   "canary stages \"%s\": expected up to %d rising shares in percent: 1,5,20,100",
                   text, CANARY_MOST_STAGES);
        out->stages[out->n_stages++] = (uint32_t)lround(percent * 100);
        more = *at++ == ',';
    }
    return ZP_OK;
}

static bool read_class(const char **at, enum length_class *out)
{
    for (int l = 0; l < LENGTHS; l++) {
        const char *name = length_name((enum length_class)l);
        size_t size = strlen(name);
        if (strncmp(*at, name, size) != 0 || (*at)[size] != ':') continue;
        *at += size + 1;
        *out = (enum length_class)l;
        return true;
    }
    return false;
}

zp_status serveoptions_sla(const char *text, struct sla_options *out, zp_err *err)
{
    const char *at = text;
    double first = 0, total = 0;
    enum length_class l = LENGTH_SHORT;
    bool good = read_class(&at, &l);
    if (good && *at != ':') good = read_number(&at, &first);
    good = good && *at == ':';
    if (good && *++at != '\0') good = read_number(&at, &total);
    ZP_FAIL_IF(!good || *at != '\0' || (first == 0 && total == 0), err, ZP_USAGE,
               "\"%s\" is no promise: expected short, medium or long, milliseconds to the first "
               "token, and to the whole answer: short:300:2000", text);
    out->limits[l] = (struct sla_limit){ first / 1e3, total / 1e3 };
    return ZP_OK;
}

/* 16 bytes of a secret, or of chance. */
static zp_status set_salt(const char *text, uint8_t salt[16], zp_err *err)
{
    static const char digits[] = "0123456789abcdef";
    struct sha256 hash;
    char hex[65];
    if (text == NULL) {
        ZP_FAIL_IF(getrandom(salt, 16, 0) != 16, err, ZP_RUN, "the system gives no random bytes");
        return ZP_OK;
    }
    sha256_init(&hash);
    sha256_update(&hash, text, strlen(text));
    sha256_final(&hash, hex);
    for (size_t i = 0; i < 32; i++) {
        unsigned digit = (unsigned)(strchr(digits, hex[i]) - digits), high = salt[i / 2];
        salt[i / 2] = (uint8_t)(high << 4 | digit);
    }
    return ZP_OK;
}

zp_status serveoptions_rollout(const zp_serve_options *o, struct rollout_options *out,
                               zp_err *err)
{
    *out = (struct rollout_options){ .breaker.most_std = o->breaker_std,
                                     .canary.sticky = o->canary_sticky };
    ZP_TRY(set_salt(o->canary_salt, out->canary.salt, err));
    if (o->canary_stages != NULL)
        ZP_TRY(serveoptions_stages(o->canary_stages, &out->canary, err));
    for (size_t i = 0; i < o->sla.n; i++) ZP_TRY(serveoptions_sla(o->sla.at[i], &out->sla, err));
    return ZP_OK;
}
