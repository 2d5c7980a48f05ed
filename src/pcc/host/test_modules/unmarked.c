/* A shared object that is no algorithm. */
int unrelated(void);
int unrelated(void) { return 1; }
