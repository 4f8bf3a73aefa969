/* main.c - gives a fuzz target every file of a folder, once. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void replay(const char *folder, const char *name) {
  char path[4096];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  FILE *file = fopen(path, "rb");
  uint8_t *data = malloc(1 << 20);      /* on the heap, so that the sanitizer sees who reads further */
  if (!file || !data) { perror(path); exit(1); }
  size_t size = fread(data, 1, 1 << 20, file);
  fclose(file);
  LLVMFuzzerTestOneInput(data = realloc(data, size ? size : 1), size);
  free(data);
}

int main(int argc, char **argv) {
  int count = 0;
  DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
  if (!folder) { fprintf(stderr, "usage: %s FOLDER\n", argv[0]); return 1; }
  for (struct dirent *entry; (entry = readdir(folder));) {
    if (entry->d_name[0] == '.') continue;
    replay(argv[1], entry->d_name);
    count++;
  }
  closedir(folder);
  printf("%s: %d files\n", argv[1], count);
  return count == 0;
}
