/* serveguard.h: who may use the server, and how much of it. */
#ifndef SERVE_SERVEGUARD_H
#define SERVE_SERVEGUARD_H

#include "serve/service.h"

bool serveguard_client(struct servecall *c, struct apifault *fault);
bool serveguard_admin(struct servecall *c, struct apifault *fault);
/* A request, or its prompt, is within what the key has left; charge: what came beside it. */
bool serveguard_take_request(const struct servecall *c, struct apifault *fault);
bool serveguard_take_tokens(struct servekey *key, uint64_t n, struct apifault *fault);
void serveguard_charge(struct servekey *key, uint64_t n_tokens);

#endif
