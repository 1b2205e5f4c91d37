// Package respwire writes commands and reads replies of RESP2 and RESP3. The
// tests that are not about a client library use it, and so do the loads in
// verify/. The operator's subcommands use go-redis, and the server has a parser
// of its own: package resp.
package respwire
