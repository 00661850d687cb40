#include "count.h"

#include <ctype.h>

size_t count_words(const char *text)
{
    size_t words = 0;

    for (const char *at = text; *at != '\0'; at++) {
        if (isspace((unsigned char)*at)) {
            words++;
        }
    }
    return words + 1;
}
