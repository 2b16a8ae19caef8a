/* servepage.h: the dashboard: a page, its program and its looks, which are bytes of the binary. */
#ifndef SERVE_SERVEPAGE_H
#define SERVE_SERVEPAGE_H

#include "serve/service.h"

void servepage(const struct servecall *c);

#endif
