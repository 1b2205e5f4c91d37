package fsm

// nativeScript is a script whose text this program knows by its SHA1, run as
// one command of the machine: the compare-and-delete and compare-and-expire
// that nearly every lock library sends. What it does must be what the
// interpreter does with the text, to the byte; test/compat compares both.
type nativeScript struct {
	keys, args int // at least
	// line is where the script calls the command that can fail, for the text of
	// the error.
	line int
	run  func(c *Ctx, keys, argv [][]byte) Reply
}

// fits reports whether the call has what the script reads; if not, the
// interpreter says what is wrong.
func (n *nativeScript) fits(keys, argv [][]byte) bool {
	return len(keys) >= n.keys && len(argv) >= n.args
}

// scriptIsNative reports whether a call of EVAL or EVALSHA needs no interpreter.
func scriptIsNative(cmd *Command, args [][]byte) bool {
	var n *nativeScript
	switch cmd.Name {
	case "eval":
		n = native[SHA1(args[1])]
	case "evalsha":
		var low [40]byte
		if len(args[1]) != len(low) {
			return false
		}
		for i, b := range args[1] {
			if 'A' <= b && b <= 'F' {
				b += 'a' - 'A'
			}
			low[i] = b
		}
		n = native[string(low[:])]
	}
	if n == nil {
		return false
	}
	keys, argv, err := scriptArgs(args)
	return err == "" && n.fits(keys, argv)
}

// native holds the scripts by SHA1. The names are those of the libraries that
// send them.
var native = nativeTable()

func nativeTable() map[string]*nativeScript {
	t := make(map[string]*nativeScript)
	add := func(n nativeScript, shas ...string) {
		for _, sha := range shas {
			t[sha] = &n
		}
	}
	// if get(K1) == A1 then return del(K1) else return 0
	add(nativeScript{1, 1, 1, compareAndDelete},
		"cf0e94b2e9ffc7e04395cf88f7583fc309985910", // bsm/redislock 0.9 release
		"647c65a442733a1aa440f99908d249d13b4d6c4a", // Laravel release
	)
	add(nativeScript{1, 1, 2, compareAndDelete},
		"4e92fdc63815b3a0a2dd1c1df3694de73607c88d", // redlock-py
		"daf86bbf8740dd3ca86733367a016364b2110627", // rslock
	)
	// val = get(K1); if val == A1 return del(K1) elseif val == false return -1 else return 0
	add(nativeScript{1, 1, 2, redsyncDelete}, "e950836ed1e694540c503ef9972b8de518044d3b")
	// if get(K1) == A1 then return pexpire(K1, A2) else return 0
	add(nativeScript{1, 2, 2, compareAndExpire}, "d75bb8b5bd13532ddedd17762e772346e39b321e") // redsync
	add(nativeScript{1, 2, 1, compareAndExpire}, "a7aba3bc5d6e99b3003da8b9d80a63b9f4092ecf") // bsm/redislock 0.9 refresh
	return t
}

// held compares the value of a key with a token. fail is what the script's
// redis.call would have raised.
func (c *Ctx) held(key, token []byte) (o *object, same bool, fail Reply) {
	o, wrong := c.lookupString(key)
	if wrong {
		return nil, false, Error(msgWrongType)
	}
	return o, o != nil && o.str == viewString(token), Reply{}
}

func compareAndDelete(c *Ctx, keys, argv [][]byte) Reply {
	o, same, fail := c.held(keys[0], argv[0])
	switch {
	case fail.IsError():
		return fail
	case !same:
		return Zero
	}
	c.delete(o)
	return One
}

func redsyncDelete(c *Ctx, keys, argv [][]byte) Reply {
	o, same, fail := c.held(keys[0], argv[0])
	switch {
	case fail.IsError():
		return fail
	case o == nil:
		return Int(-1)
	case !same:
		return Zero
	}
	c.delete(o)
	return One
}

func compareAndExpire(c *Ctx, keys, argv [][]byte) Reply {
	_, same, fail := c.held(keys[0], argv[0])
	switch {
	case fail.IsError():
		return fail
	case !same:
		return Zero
	}
	return c.m.table.Find([]byte("pexpire")).Run(c, [][]byte{[]byte("pexpire"), keys[0], argv[1]})
}
