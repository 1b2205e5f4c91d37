// Package respwire writes commands and reads replies of RESP2 and RESP3. It
// serves the clients of verify/ that measure or that need the exact bytes, and
// all tests. The operator's subcommands use go-redis, and the server has a
// parser of its own: package resp.
package respwire
