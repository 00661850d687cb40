#include "count.h"

#include <stdio.h>

static int failed;

static void check(const char *text, size_t expected)
{
    size_t found = count_words(text);

    if (found != expected) {
        printf("FAIL \"%s\": %zu words, not %zu\n", text, found, expected);
        failed++;
    } else {
        printf("ok   \"%s\"\n", text);
    }
}

int main(void)
{
    check("one", 1);
    check("two words", 2);
    check("several   spaces", 2);
    check(" in front and behind ", 4);
    check("", 0);
    printf(failed == 0 ? "all tests pass\n" : "%d tests fail\n", failed);
    return failed != 0;
}
