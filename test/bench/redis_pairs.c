/*
 * Takes and gives back locks of Redis, as its documentation says: SET key owner NX PX, then a
 * script that deletes the key if the owner is still the same.  One command in flight for each
 * client and two threads that poll, which is how pgbench works with -j 2.
 *
 *	redis_pairs PORT CLIENTS SECONDS OWNER SCRIPT-SHA
 *
 * Prints the number of pairs and pairs per second.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_CLIENTS 256
#define KEYS 10000000

typedef struct Client
{
	int			fd;
	int			releasing;		/* which reply is awaited */
	unsigned	seed;
	char		key[16];
	char		reply[64];
	size_t		got;
} Client;

typedef struct Worker
{
	Client	   *clients;
	int			count;
	long		pairs;
	pthread_t	thread;
} Worker;

static Client clients[MAX_CLIENTS];
static const char *owner;
static const char *sha;
static double end;

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void
die(const char *what)
{
	fprintf(stderr, "redis_pairs: %s\n", what);
	exit(1);
}

static void
send_next(Client *c)
{
	char		out[512];
	int			len;

	if (c->releasing)
		len = snprintf(out, sizeof(out),
					   "*5\r\n$7\r\nEVALSHA\r\n$%zu\r\n%s\r\n$1\r\n1\r\n$%zu\r\n%s\r\n"
					   "$%zu\r\n%s\r\n", strlen(sha), sha, strlen(c->key), c->key,
					   strlen(owner), owner);
	else
	{
		snprintf(c->key, sizeof(c->key), "%d", rand_r(&c->seed) % KEYS);
		len = snprintf(out, sizeof(out),
					   "*6\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$2\r\nNX\r\n"
					   "$2\r\nPX\r\n$5\r\n30000\r\n", strlen(c->key), c->key,
					   strlen(owner), owner);
	}
	if (write(c->fd, out, len) != len)
		die("could not send");
}

/* receive: whether a pair is done now */
static int
receive(Client *c)
{
	const char *expected = c->releasing ? ":1\r\n" : "+OK\r\n";
	ssize_t		n = read(c->fd, c->reply + c->got, sizeof(c->reply) - 1 - c->got);

	if (n <= 0)
		die("the server has closed the connection");
	c->got += n;
	if (c->reply[c->got - 1] != '\n')
		return 0;
	c->reply[c->got] = '\0';
	c->got = 0;
	/* Two clients met at one key: a lost attempt, and no pair. */
	if (!c->releasing && strcmp(c->reply, "$-1\r\n") == 0)
		return 0;
	if (strcmp(c->reply, expected) != 0)
		die(c->reply);
	c->releasing = !c->releasing;
	return !c->releasing;
}

static void *
work(void *arg)
{
	Worker	   *w = arg;
	struct pollfd fds[MAX_CLIENTS];

	for (int i = 0; i < w->count; i++)
	{
		fds[i].fd = w->clients[i].fd;
		fds[i].events = POLLIN;
		send_next(&w->clients[i]);
	}
	while (now() < end)
	{
		if (poll(fds, w->count, 1000) < 0)
			die("could not poll");
		for (int i = 0; i < w->count; i++)
		{
			Client	   *c = &w->clients[i];

			if ((fds[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0)
				continue;
			w->pairs += receive(c);
			if (c->got == 0)
				send_next(c);
		}
	}
	return NULL;
}

static void
open_client(Client *c, int port, int number)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	int			on = 1;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	c->fd = socket(AF_INET, SOCK_STREAM, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *) &address, sizeof(address)) != 0)
		die("could not connect");
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	c->seed = (unsigned) time(NULL) * MAX_CLIENTS + number;
}

int
main(int argc, char **argv)
{
	Worker		workers[2] = {{0}};
	int			count;
	int			threads;
	double		began;
	long		pairs = 0;

	if (argc != 6)
		die("wrong number of arguments");
	count = atoi(argv[2]);
	if (count < 1 || count > MAX_CLIENTS)
		die("wrong number of clients");
	owner = argv[4];
	sha = argv[5];
	for (int i = 0; i < count; i++)
		open_client(&clients[i], atoi(argv[1]), i);

	threads = count > 1 ? 2 : 1;
	began = now();
	end = began + atof(argv[3]);
	for (int i = 0, first = 0; i < threads; i++)
	{
		workers[i].clients = clients + first;
		workers[i].count = count / threads + (i < count % threads);
		first += workers[i].count;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			die("could not start a thread");
	}
	for (int i = 0; i < threads; i++)
	{
		pthread_join(workers[i].thread, NULL);
		pairs += workers[i].pairs;
	}
	printf("%ld %.1f\n", pairs, pairs / (now() - began));
	return 0;
}
