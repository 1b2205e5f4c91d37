/* hiredis: a lock, MULTI, a pipeline, a cut connection. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what) {
    printf("%s failed\n", what);
    exit(1);
}

/* run sends a command and checks the type and, if text is given, the string. */
static redisReply *run(redisContext *c, int type, const char *text, const char *command) {
    redisReply *r = redisCommand(c, command);
    if (r == NULL || r->type != type || (text && strcmp(r->str, text) != 0)) fail(command);
    return r;
}

int main(int argc, char **argv) {
    redisContext *c = redisConnect(argv[1], atoi(argv[2]));
    redisContext *other = redisConnect(argv[1], atoi(argv[2]));
    if (c == NULL || c->err || other == NULL || other->err) fail("connect");
    freeReplyObject(run(c, REDIS_REPLY_STATUS, "PONG", "PING"));
    freeReplyObject(run(c, REDIS_REPLY_STATUS, "OK", "SET lock token NX EX 60"));
    freeReplyObject(run(c, REDIS_REPLY_NIL, NULL, "SET lock token NX EX 60"));
    freeReplyObject(run(c, REDIS_REPLY_STRING, "token", "GET lock"));
    freeReplyObject(run(c, REDIS_REPLY_STATUS, "OK", "MULTI"));
    freeReplyObject(run(c, REDIS_REPLY_STATUS, "QUEUED", "SET n 1"));
    freeReplyObject(run(c, REDIS_REPLY_STATUS, "QUEUED", "INCR n"));
    redisReply *r = run(c, REDIS_REPLY_ARRAY, NULL, "EXEC");
    if (r->elements != 2 || r->element[1]->integer != 2) fail("EXEC");
    freeReplyObject(r);

    for (int i = 0; i < 500; i++) redisAppendCommand(c, "INCR counter");
    for (int i = 0; i < 500; i++) {
        if (redisGetReply(c, (void **)&r) != REDIS_OK || r->integer != i + 1) fail("pipeline");
        freeReplyObject(r);
    }

    r = run(c, REDIS_REPLY_INTEGER, NULL, "CLIENT ID");
    redisReply *killed = redisCommand(other, "CLIENT KILL ID %lld", r->integer);
    if (killed == NULL || killed->integer != 1) fail("CLIENT KILL");
    freeReplyObject(killed);
    freeReplyObject(r);
    if (redisCommand(c, "GET lock") != NULL) fail("GET on a cut connection");
    if (redisReconnect(c) != REDIS_OK) fail("reconnect");
    freeReplyObject(run(c, REDIS_REPLY_STRING, "token", "GET lock"));
    redisFree(c);
    redisFree(other);
    printf("ok\n");
    return 0;
}
