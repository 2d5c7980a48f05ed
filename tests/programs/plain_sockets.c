/* A pair of programs that know nothing of RDMA: the server echoes what the client sends. Run with
 * librspreload they speak over rsockets.
 *
 *   plain_sockets ADDRESS PORT          serves one client
 *   plain_sockets ADDRESS PORT BYTES    sends that many bytes and checks what comes back
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void require(int condition, const char* what) {
    if (condition) return;
    perror(what);
    exit(1);
}

static unsigned char pattern(size_t index) { return (unsigned char)(index * 31 + (index >> 8)); }

static void serve(int listener, const struct sockaddr_in* address) {
    static char buffer[16384];
    int one = 1;
    require(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0, "setsockopt");
    require(bind(listener, (const struct sockaddr*)address, sizeof *address) == 0, "bind");
    require(listen(listener, 1) == 0, "listen");
    int client = accept(listener, NULL, NULL);
    require(client >= 0, "accept");
    ssize_t length;
    while ((length = recv(client, buffer, sizeof buffer, 0)) > 0) {
        for (ssize_t sent = 0; sent < length;) {
            ssize_t n = send(client, buffer + sent, (size_t)(length - sent), 0);
            require(n > 0, "send");
            sent += n;
        }
    }
    require(length == 0, "recv");
    close(client);
}

static void exchange(int server, const struct sockaddr_in* address, size_t total) {
    static unsigned char buffer[16384];
    require(connect(server, (const struct sockaddr*)address, sizeof *address) == 0, "connect");
    size_t sent = 0, received = 0;
    while (received < total) {
        short events = (short)(POLLIN | (sent < total ? POLLOUT : 0));
        struct pollfd entry = {.fd = server, .events = events};
        require(poll(&entry, 1, 10000) == 1, "poll");
        if (entry.revents & POLLOUT) {
            size_t count = total - sent < 5000 ? total - sent : 5000;
            for (size_t i = 0; i < count; ++i) buffer[i] = pattern(sent + i);
            ssize_t n = send(server, buffer, count, MSG_DONTWAIT);
            if (n > 0) sent += (size_t)n;
        }
        if (entry.revents & POLLIN) {
            ssize_t n = recv(server, buffer, sizeof buffer, MSG_DONTWAIT);
            for (ssize_t i = 0; i < n; ++i)
                require(buffer[i] == pattern(received + (size_t)i), "the echo differs");
            require(n != 0, "the server has closed");
            if (n > 0) received += (size_t)n;
        }
    }
    require(shutdown(server, SHUT_WR) == 0, "shutdown");
    require(recv(server, buffer, 1, 0) == 0, "the end");
    printf("%zu bytes echoed\n", total);
}

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10))};
    require(inet_pton(AF_INET, argv[1], &address.sin_addr) == 1, "address");
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    require(fd >= 0, "socket");
    if (argc > 3)
        exchange(fd, &address, strtoul(argv[3], NULL, 10));
    else
        serve(fd, &address);
    close(fd);
    return 0;
}
