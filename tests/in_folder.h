/* in_folder.h: a folder for the files of one test program, gone with it. Include after cmocka.h. */
#ifndef TESTS_IN_FOLDER_H
#define TESTS_IN_FOLDER_H

#include <stdio.h>
#include <stdlib.h>

static char folder[] = "/tmp/zerope-test-XXXXXX";

/* Path of a file of the folder; good for the thread's next 31 calls. */
static inline const char *in_folder(const char *name)
{
    static _Thread_local char path[32][128];
    static _Thread_local unsigned next;
    char *out = path[next++ % 32];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

/* For cmocka_run_group_tests. */
static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

#endif
