#include "count.h"

#include <stdio.h>

/* Counts the words of each line that is typed, until it is interrupted. */
int main(void)
{
    char line[1024];

    printf("type a line> ");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        printf("%zu words\ntype a line> ", count_words(line));
        fflush(stdout);
    }
    return 0;
}
