/* serveoptions.h: options of the server that are texts, as its parts want them. */
#ifndef SERVE_SERVEOPTIONS_H
#define SERVE_SERVEOPTIONS_H

#include <zerope/serve.h>
#include "serve/rollout.h"

/* Fails with ZP_USAGE for texts that make no sense. */
zp_status serveoptions_rollout(const zp_serve_options *o, struct rollout_options *out,
                               zp_err *err);
/* "short:300:2000": either number may be missing, not both. */
zp_status serveoptions_sla(const char *text, struct sla_options *out, zp_err *err);
/* "1,5,20,100" */
zp_status serveoptions_stages(const char *text, struct canary_options *out, zp_err *err);

#endif
