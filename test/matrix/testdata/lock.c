/* hiredis: a lock by hand, a script, pipelines. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int ok, const char *what, redisReply *r) {
	if (ok) return;
	fprintf(stderr, "%s: %s\n", what, r && r->str ? r->str : "no reply");
	exit(1);
}

static const char *script = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

int main(int argc, char **argv) {
	redisContext *a = redisConnect(argv[1], atoi(argv[2])), *b = redisConnect(argv[1], atoi(argv[2]));
	redisReply *r;
	char line[64];
	if (!a || a->err || !b || b->err) return 1;
	for (int i = 0; i < 20; i++) {
		r = redisCommand(a, "SET lock a%d NX PX 60000", i);
		check(r && r->type == REDIS_REPLY_STATUS, "lock", r);
		freeReplyObject(r);
		if (i == 10) {
			puts("half");
			fflush(stdout);
			if (!fgets(line, sizeof line, stdin)) return 1;
		}
		r = redisCommand(b, "SET lock b%d NX PX 60000", i);
		check(r && r->type == REDIS_REPLY_NIL, "second lock", r);
		freeReplyObject(r);
		r = redisCommand(b, "EVAL %s 1 lock b%d", script, i);
		check(r && r->type == REDIS_REPLY_INTEGER && r->integer == 0, "wrong token", r);
		freeReplyObject(r);
		r = redisCommand(a, "EVAL %s 1 lock a%d", script, i);
		check(r && r->type == REDIS_REPLY_INTEGER && r->integer == 1, "unlock", r);
		freeReplyObject(r);
		for (int k = 0; k < 50; k++) redisAppendCommand(a, "INCR n");
		for (int k = 0; k < 50; k++) {
			check(redisGetReply(a, (void **)&r) == REDIS_OK && r->integer == i * 50 + k + 1, "pipeline", r);
			freeReplyObject(r);
		}
	}
	puts("ok");
	return 0;
}
