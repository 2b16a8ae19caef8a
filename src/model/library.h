/* library.h: what the library says about itself; also the home of zp_free, zp_log_set and
 * zp_version. */
#ifndef MODEL_LIBRARY_H
#define MODEL_LIBRARY_H

#include "base/json_build.h"

/* Member "libraries": name -> version in use. */
void library_write_versions(struct json_build *w);

#endif
