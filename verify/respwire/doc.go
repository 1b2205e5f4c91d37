// Package respwire writes commands and reads replies of RESP2 and RESP3. All
// tests use it, and so do the clients of verify/ that measure times or need the
// exact bytes. The operator's subcommands use go-redis, and the server has a
// parser of its own: package resp.
package respwire
