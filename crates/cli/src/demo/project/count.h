#ifndef COUNT_H
#define COUNT_H

#include <stddef.h>

/* How many words are in a text. Words are separated by white space. */
size_t count_words(const char *text);

#endif
