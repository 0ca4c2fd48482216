/* Where the fields of structs lie, for Python to compare with what it fills in (compiled.py). */

#ifndef OSCINE_LAYOUT_H
#define OSCINE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

struct place {
    const char *name; /* "struct" or "struct.field"; NULL ends a list */
    int64_t offset, size;
};

#define STRUCT(type) {#type, 0, sizeof(struct type)}
#define FIELD(type, field) {#type "." #field, offsetof(struct type, field), sizeof(((struct type *)0)->field)}

#endif
