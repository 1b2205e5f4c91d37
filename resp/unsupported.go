package resp

import (
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// foreignNames are commands of Redis 7.0 that this server may lack. ACL rules
// may name them, without effect, so that an ACL file of a Redis server can be
// used unchanged. Names of commands that do exist here are ignored, so the list
// need not be updated when a command is added.
const foreignNames = `bitcount bitfield bitfield_ro bitop bitpos blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin dump eval eval_ro
	evalsha evalsha_ro failover fcall fcall_ro function|delete function|dump function|flush function|help function|kill function|list
	function|load function|restore function|stats geoadd geodist geohash geopos georadius georadius_ro georadiusbymember
	georadiusbymember_ro geosearch geosearchstore getbit lcs lmpop memory|malloc-stats memory|stats migrate monitor pfadd pfcount pfdebug
	pfmerge pfselftest psync replconf replicaof restore restore-asking script|debug script|exists script|flush script|help script|kill
	script|load setbit shutdown slaveof sort sort_ro sync xack xadd xautoclaim xclaim xdel xgroup|create xgroup|createconsumer
	xgroup|delconsumer xgroup|destroy xgroup|help xgroup|setid xinfo|consumers xinfo|groups xinfo|help xinfo|stream xlen xpending xrange
	xread xreadgroup xrevrange xsetid xtrim zdiff zdiffstore zinter zintercard zmpop zunion`

// addForeign returns rows and, after them, the foreign commands that rows
// lacks. A missing subcommand of an existing container is added to a copy of
// the container.
func addForeign(rows []*fsm.Command) []*fsm.Command {
	index := make(map[string]int)
	for i, cmd := range rows {
		index[cmd.Name] = i
	}
	for _, full := range strings.Fields(foreignNames) {
		name, sub, isSub := strings.Cut(full, "|")
		i, known := index[name]
		if !known {
			i = len(rows)
			index[name] = i
			rows = append(rows, &fsm.Command{Name: name, Arity: -1})
		}
		if !isSub || hasSub(rows[i], sub) {
			continue
		}
		cmd := *rows[i]
		cmd.Sub = append(cmd.Sub[:len(cmd.Sub):len(cmd.Sub)], fsm.Command{Name: sub, Arity: -2})
		rows[i] = &cmd
	}
	return rows
}

func hasSub(cmd *fsm.Command, name string) bool {
	for i := range cmd.Sub {
		if cmd.Sub[i].Name == name {
			return true
		}
	}
	return false
}

// absentRows are the commands of a Redis server that have no function here but
// that an operator may try. The reply says what to do instead. COMMAND does not
// list them.
//
// Commands that a client library may probe for are not in this list. They get
// the reply for an unknown command, because client libraries detect missing
// features by that reply. SENTINEL is the main example: StackExchange.Redis
// treats a node that answers SENTINEL as a sentinel.
var absentRows = []row{
	absent("replicaof", "nodes replicate by themselves, see HOLDFAST STATUS"),
	absent("slaveof", "nodes replicate by themselves, see HOLDFAST STATUS"),
	absent("psync", "nodes replicate through another port"),
	absent("sync", "nodes replicate through another port"),
}

func absent(name, instead string) row {
	text := "ERR " + upper(name) + " is not supported: " + instead
	return row{
		cmd:    fsm.Command{Name: name, Arity: -1, Group: "server", Since: "holdfast", Complexity: "O(1)", Doc: "Refused"},
		words:  "admin noscript no_multi",
		hidden: true,
		run:    func(*conn, [][]byte) fsm.Reply { return fsm.Error(text) },
	}
}
