// SPDX-License-Identifier: Apache-2.0
// One of many containers that talk in a ring: answers at its own address, and sends the next one's a datagram each
// PERIOD ms and waits for the answer. It begins when its standard input ends, and is a tenth of the memory of a program
// with a runtime, of which a thousand would be busy with themselves.
//
// usage: talk NUMBER ALL PORT PERIOD
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_in address(int number, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

	a.sin_addr.s_addr = htonl(127u << 24 | 77 << 16 | (number / 250) << 8 | (1 + number % 250));
	return a;
}

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
	char payload[64] = {0};
	struct sockaddr_in from;
	socklen_t length;

	if (argc != 5)
		return 2;
	int number = atoi(argv[1]), all = atoi(argv[2]), port = atoi(argv[3]), period = atoi(argv[4]);
	while (read(0, payload, sizeof(payload)) > 0)
		;
	struct sockaddr_in own = address(number, port), next = address((number + 1) % all, port);
	int server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
	if (server < 0 || client < 0 || bind(server, (void *)&own, sizeof(own)) ||
	    connect(client, (void *)&next, sizeof(next))) {
		perror("talk");
		return 1;
	}
	// Not all at once.
	long long due = now_ms() + (long long)period * number / all;
	for (;;) {
		struct pollfd of[] = {{.fd = server, .events = POLLIN}, {.fd = client, .events = POLLIN}};
		long long left = due - now_ms();

		if (left <= 0) {
			send(client, payload, sizeof(payload), 0); // refused where the next one is not there yet
			due += period;
			continue;
		}
		if (poll(of, 2, left) <= 0)
			continue;
		if (of[0].revents) {
			length = sizeof(from);
			ssize_t n = recvfrom(server, payload, sizeof(payload), 0, (void *)&from, &length);
			if (n >= 0)
				sendto(server, payload, n, 0, (void *)&from, length);
		}
		if (of[1].revents)
			recv(client, payload, sizeof(payload), 0);
	}
}
