package fsm

import (
	"slices"
	"strconv"

	"github.com/holdfast-kv/holdfast/fsm/codec"
	"github.com/holdfast-kv/holdfast/fsm/keyspace"
	"github.com/holdfast-kv/holdfast/fsm/number"
)

// nativeScript is a script that this program recognizes by its SHA1 and
// executes as one command of the machine. Many lock libraries acquire, renew
// and release a lock with these scripts. Programs without a library send some
// of them too (see spellings). The effects and the reply equal, byte for byte,
// those of the script's text in the interpreter.
//
// A native script cannot fail after its first write. It is executed only with
// arguments that its writes accept (see fits), and it checks first whether its
// keys have the right types. A call with other arguments goes to the
// interpreter.
//
// The log contains the calls themselves. So adding a native script, or changing
// what a native script does, changes the meaning of the log.
type nativeScript struct {
	keys, args int // minimum numbers of KEYS and of ARGV
	// numbers are the indices, from 0, of the arguments in ARGV that must be
	// positive integers, at most maxNativeNumber. Such an argument is a time to
	// live, a deadline or a length.
	numbers []int
	// line is the line of the first call in the text that can fail. The error
	// names this line.
	line int
	run  func(s *nativeRun) Reply
	// fit, unless nil, is an additional condition on the arguments.
	fit func(keys, argv [][]byte) bool
}

// nativeRun is one execution of a native script.
type nativeRun struct {
	*Ctx
	keys, argv [][]byte
	tracks     bool // the connection tracks its reads, and no read of the script is reported yet: see reads
}

// reads emits events for a read of the script, if the connection tracks its
// reads. As in Redis, the read counts as a read of all keys of the script. So the
// connection is also notified of the script's later writes to these keys.
func (s *nativeRun) reads() {
	if !s.tracks {
		return
	}
	s.tracks = false
	for _, key := range s.keys {
		s.tracked(s.m.table.Find([]byte("get")), [][]byte{nil, key})
	}
}

// readsAgain is like reads, for a read after a write.
func (s *nativeRun) readsAgain() {
	s.tracks = s.r.track
	s.reads()
}

// These limits bound the arguments of native scripts. They are below all limits
// of the commands that the scripts execute.
const (
	maxNativeKeys   = 1024
	maxNativeBytes  = 64 << 10
	maxNativeNumber = 1 << 42 // for a time in milliseconds, from now or since 1970: 139 years
)

// fits reports whether a call has arguments that the native form accepts.
func (n *nativeScript) fits(keys, argv [][]byte) bool {
	tooLong := func(b []byte) bool { return len(b) > maxNativeBytes }
	if len(keys) < n.keys || len(argv) < n.args || len(keys) > maxNativeKeys ||
		slices.ContainsFunc(keys, tooLong) || slices.ContainsFunc(argv, tooLong) {
		return false
	}
	for _, i := range n.numbers {
		if v, ok := number.ParseInt(argv[i]); !ok || v <= 0 || v > maxNativeNumber {
			return false
		}
	}
	return n.fit == nil || n.fit(keys, argv)
}

// call executes the script. If the script fails, call appends the same suffix
// to the error text as the interpreter would.
func (n *nativeScript) call(c *Ctx, sha string, keys, argv [][]byte) Reply {
	reply := c.quarantinedScript(sha, keys)
	if !reply.IsError() {
		reply = c.delayedScript(sha, keys)
	}
	if !reply.IsError() {
		c.acquires = acquiring[sha]
		reply = n.run(&nativeRun{c, keys, argv, c.r.track})
		c.acquires = false
	}
	if reply.IsError() {
		return Error(reply.s + " script: " + sha + ", on @user_script:" + strconv.Itoa(n.line) + ".")
	}
	return reply
}

// isNative reports whether a call of EVAL or EVALSHA by a user without rules needs
// no interpreter. Such a call is executed as a native script, or refused before it
// is executed.
func isNative(sha string, args [][]byte) bool {
	n := native[sha]
	if n == nil {
		return false
	}
	keys, argv, fail := scriptArgs(args)
	return fail != "" || n.fits(keys, argv)
}

// nativeFor returns the native script for a call, or nil if the call has to be
// interpreted. A native script does not check the rules of a user, so calls of
// users with rules are interpreted.
func (c *Ctx) nativeFor(sha string, args, keys, argv [][]byte) *nativeScript {
	if n := native[sha]; n != nil && c.r.user == "" && !readOnlyScript(args) && n.fits(keys, argv) {
		return n
	}
	return nil
}

// native contains the native scripts by SHA1. acquiring contains the native
// scripts that create their keys if the keys are absent.
var native, acquiring = nativeTable()

func nativeTable() (t map[string]*nativeScript, acquiring map[string]bool) {
	t, acquiring = make(map[string]*nativeScript), make(map[string]bool)
	add := func(n nativeScript, shas ...string) {
		for _, sha := range shas {
			t[sha] = &n
		}
	}
	acquires := func(n nativeScript, shas ...string) {
		add(n, shas...)
		for _, sha := range shas {
			acquiring[sha] = true
		}
	}
	first, second := []int{0}, []int{1}

	for _, s := range spellings("del", "DEL", "") {
		add(nativeScript{1, 1, nil, s.line, compareAndDelete, nil}, SHA1([]byte(s.text)))
	}
	for _, s := range spellings("pexpire", "PEXPIRE", "ARGV[2]") {
		add(nativeScript{1, 2, second, s.line, compareAndExpire, nil}, SHA1([]byte(s.text)))
	}

	// Release: delete the key if its value is the owner.
	add(nativeScript{1, 1, nil, 1, compareAndDelete, nil},
		"cf0e94b2e9ffc7e04395cf88f7583fc309985910", // bsm/redislock 0.9
		"647c65a442733a1aa440f99908d249d13b4d6c4a", // Laravel
		"8e4905cee18e7c3188d10f2b8b170e403baed34f", // redlock-rb
		"18b2a577dbe847b16bebde190d69a1613d68e60e", // RedLock.net
		"9eb62214c9af87ae5f9a9f12bb4520281c0d2ae1", // rueidislock
	)
	add(nativeScript{1, 1, nil, 2, compareAndDelete, nil},
		"4e92fdc63815b3a0a2dd1c1df3694de73607c88d", // redlock-py
		"a4aada0b36710970eedaaaeec4a6b7d8c78c4f80", // pottery
		"daf86bbf8740dd3ca86733367a016364b2110627", // rslock
		"c3f8721cbb97f72bc19e972846bd7aaf91901658", // redis-py Lock, release
	)
	add(nativeScript{1, 1, nil, 1, springUnlock, nil}, "f0f9038aa2b6d6c3436c72d147573ea2a58f0ef2")
	add(nativeScript{1, 2, nil, 1, springUnlockAndPublish, nil}, "7a71e9443a2a41539fb115a5a27d5a748a871aed")
	add(nativeScript{1, 1, nil, 2, redsyncDelete, nil}, "e950836ed1e694540c503ef9972b8de518044d3b")
	add(nativeScript{0, 1, nil, 5, nodeRedlockRelease, nil},
		"e4612211c9f8f51c257e26e056b0a654b3187242", // node-redlock 5
		"0f0f23b9048b36752b5be114f357ba083449f908", // node-redlock 4
	)
	add(nativeScript{2, 2, second, 2, signallingUnlock, nil},
		"90da91872223f85eb1376a17e3c4df21ace8c54b", // python-redis-lock
	)
	add(nativeScript{2, 2, second, 2, signallingReset, nil}, "afbc8014508f92e446b56567e8ba600e811c1bd5")

	// Renew: set a new time to live if the value is the owner.
	add(nativeScript{1, 2, second, 1, compareAndExpire, nil},
		"a7aba3bc5d6e99b3003da8b9d80a63b9f4092ecf", // bsm/redislock 0.9
	)
	add(nativeScript{1, 2, second, 2, compareAndExpire, nil},
		"d75bb8b5bd13532ddedd17762e772346e39b321e", // redsync
		"ba015a80261b616e7a62d35df0b8e3edbe6c9414", // pottery
		"1cac51482acf5858da00f6d685d68f886cd6b6b2", // redis-py Lock, reacquire
	)
	add(nativeScript{1, 2, second, 1, springRenew, nil}, "879e0f7b8d83c3266d4e996627438c05dbda0b89")
	add(nativeScript{0, 1, first, 1, redissonRenew, oneHolderPerKey}, "6a3d31570dc6f4b0bd32bcdc8e75667747c6f635")
	acquires(nativeScript{1, 2, second, 2, touchOrSet(Zero), nil},
		"b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79", // redsync
	)
	add(nativeScript{1, 2, second, 2, redisPyExtend, nil}, "a4e8783852e6b949f9ef3a97212805108459a890")
	add(nativeScript{1, 2, second, 2, rslockExtend, nil}, "17a49af0c4b1a9034503fa84f3570f5ca76c4cbf")
	acquires(nativeScript{1, 2, second, 1, touchOrSet(Int(-1)), nil},
		"9f614a785a5f9ae8c6396c6b4bf94d2087342603", // RedLock.net
	)
	add(nativeScript{1, 2, second, 1, rueidisExtend, nil}, "852ba6ec6104340ced36643283c856d4698569e4")
	add(nativeScript{1, 2, second, 2, signallingExtend, nil},
		"fed16109024d968d9496e4140fe1355bac05ebff", // python-redis-lock
	)
	add(nativeScript{0, 2, second, 4, nodeRedlockExtend, nil},
		"aed6f382e410db8ba7926d4e5e9aab410bf2a78a", // node-redlock 5
		"ce46f80993d5dac20dd066eb301a4e37994bdbed", // node-redlock 4
	)

	// Acquire.
	acquires(nativeScript{1, 2, second, 1, springObtain, nil}, "175897a4e379e99e79a54937be09226f76cdcfe5")
	acquires(nativeScript{1, 3, []int{1, 2}, 5, redislockObtain, nil}, "80a1b5f2cfccec3b7119ba7721d2127682b691a7")
	acquires(nativeScript{0, 2, second, 4, nodeRedlockAcquire, nil},
		"96da70f7716f27d278a5218544df37fd8b0a5e4c", // node-redlock 5
		"e5a322e2634ef59a516e8ea150cb085afafee684", // node-redlock 4
	)
	acquires(nativeScript{1, 3, second, 1, redlockRbLock, nil}, "ceb2b2062e40c51a2b3963fd078bc71f11bdc65c")
	acquires(nativeScript{1, 2, second, 1, laravelAdd, nil}, "a08c9c69b7c07ae2485190873b90d128a23e502d")
	acquires(nativeScript{1, 2, second, 1, rueidisSetIfAbsent("PX"), nil}, "fa3d1aaa7e4145457755016a3d5daf72fa7a11bf")
	acquires(nativeScript{1, 2, second, 1, rueidisSetIfAbsent("PXAT"), nil}, "3875d208d9e377969d2022550302cc83ad17b584")
	acquires(nativeScript{1, 2, second, 1, rueidisSet("PX"), nil}, "4384ed08baff4dd7071b6c78c516a2fded4ee3e7")
	acquires(nativeScript{1, 2, second, 1, rueidisSet("PXAT"), nil}, "c10e8119872659b926e8e28002d9b7fccbf15617")
	acquires(nativeScript{1, 2, first, 1, redissonLock, nil}, "149c5a8bf18676fd99e9e6e24923bd64d9b62f94")

	add(nativeScript{3, 5, []int{1, 4}, 1, redissonUnlock, publishes}, "6866459238a13a701d42f4971f12d9f3a50e2442")

	// Inspect.
	add(nativeScript{1, 1, nil, 1, redislockPTTL, nil}, "6484da7d58920897fdc22b7f9afd1a3d47524ea8")
	add(nativeScript{1, 1, nil, 2, potteryAcquired, nil}, "f5f7bd3a3aa4a63c507c1155c5ea1219b350d992")
	add(nativeScript{1, 0, nil, 1, redlockRbPTTL, nil}, "78d2ca48a6dc9ef6892059792a3a0c5237733d64")
	return t, acquiring
}

// do executes a command of the table.
func (s *nativeRun) do(name string, args ...[]byte) Reply {
	return s.m.table.Find([]byte(name)).Run(s.Ctx, append([][]byte{[]byte(name)}, args...))
}

// held reports whether the value of the key is the owner ARGV[1]. o is nil if
// the key is absent. fail is the error that GET would raise.
func (s *nativeRun) held(key []byte) (o *keyspace.Object, same bool, fail Reply) {
	s.reads()
	o, wrong := s.LookupString(key)
	if wrong {
		return nil, false, Error(MsgWrongType)
	}
	return o, o != nil && o.Str == codec.View(s.argv[0]), None
}

// ifHeld calls the function then, and returns its reply, if the value of the first
// key is the owner ARGV[1]. If the key is absent or has another string, ifHeld
// returns the parameter other.
func (s *nativeRun) ifHeld(other Reply, then func(o *keyspace.Object) Reply) Reply {
	o, same, fail := s.held(s.keys[0])
	switch {
	case fail.IsError():
		return fail
	case !same:
		return other
	}
	return then(o)
}

func (s *nativeRun) expire(arg []byte) Reply { return s.do("pexpire", s.keys[0], arg) }

func (s *nativeRun) setPX(key []byte) Reply {
	return s.do("set", key, s.argv[0], []byte("PX"), s.argv[1])
}

func compareAndDelete(s *nativeRun) Reply {
	return s.ifHeld(Zero, func(o *keyspace.Object) Reply {
		s.EndLock(o, LockReleased)
		return One
	})
}

// springUnlock returns 1 or null. Spring's script returns true or false, and
// Redis replies with 1 for true and with null for false.
func springUnlock(s *nativeRun) Reply {
	return s.ifHeld(Null, func(o *keyspace.Object) Reply {
		s.EndLock(o, LockReleased)
		return One
	})
}

func springUnlockAndPublish(s *nativeRun) Reply {
	return s.ifHeld(Null, func(o *keyspace.Object) Reply {
		s.EndLock(o, LockReleased)
		s.do("publish", s.argv[1], s.keys[0])
		return One
	})
}

func springRenew(s *nativeRun) Reply {
	return s.ifHeld(Null, func(*keyspace.Object) Reply {
		s.expire(s.argv[1])
		return One
	})
}

func springObtain(s *nativeRun) Reply {
	s.reads()
	if s.Lookup(s.keys[0]) == nil {
		s.setPX(s.keys[0])
		return One
	}
	return springRenew(s)
}

func redsyncDelete(s *nativeRun) Reply {
	if o, _, fail := s.held(s.keys[0]); o == nil && !fail.IsError() {
		return Int(-1)
	}
	return compareAndDelete(s)
}

func compareAndExpire(s *nativeRun) Reply {
	return s.ifHeld(Zero, func(*keyspace.Object) Reply { return s.expire(s.argv[1]) })
}

// touchOrSet renews the lock if its value is the owner ARGV[1], and acquires the
// lock if it is free. The parameter others is the reply if the lock has another
// owner.
func touchOrSet(others Reply) func(s *nativeRun) Reply {
	return func(s *nativeRun) Reply {
		o, same, fail := s.held(s.keys[0])
		switch {
		case fail.IsError():
			return fail
		case same:
			return s.expire(s.argv[1])
		case o != nil:
			return others
		}
		s.setPX(s.keys[0])
		return One
	}
}

// redisPyExtend adds ARGV[2] to the remaining time if ARGV[3] is 0. Otherwise it
// makes ARGV[2] the remaining time. It does nothing to a key without a time to live.
func redisPyExtend(s *nativeRun) Reply {
	return s.ifHeld(Zero, func(*keyspace.Object) Reply {
		left := s.do("pttl", s.keys[0]).n
		if left < 0 {
			return Zero
		}
		ms := s.argv[1]
		if len(s.argv) > 2 && string(s.argv[2]) == "0" {
			n, _ := number.ParseInt(ms) // fits has checked that ARGV[2] is a number
			ms = strconv.AppendInt(nil, n+left, 10)
		}
		s.expire(ms)
		return One
	})
}

func rslockExtend(s *nativeRun) Reply {
	return s.ifHeld(Zero, func(*keyspace.Object) Reply {
		s.setPX(s.keys[0])
		return One
	})
}

func rueidisExtend(s *nativeRun) Reply {
	return s.ifHeld(Zero, func(*keyspace.Object) Reply {
		set := s.do("pexpireat", s.keys[0], s.argv[1])
		s.readsAgain()
		return set
	})
}

// signallingUnlock releases the lock if its value is the owner ARGV[1]. It wakes
// a client that waits for the second key with BLPOP.
func signallingUnlock(s *nativeRun) Reply {
	return s.ifHeld(One, func(*keyspace.Object) Reply {
		signallingReset(s)
		return Zero
	})
}

func signallingReset(s *nativeRun) Reply {
	s.do("del", s.keys[1])
	s.do("lpush", s.keys[1], []byte("1"))
	s.do("pexpire", s.keys[1], s.argv[1])
	return s.do("del", s.keys[0])
}

func signallingExtend(s *nativeRun) Reply {
	return s.ifHeld(One, func(o *keyspace.Object) Reply {
		if o.Deadline == 0 {
			return Int(2)
		}
		if set := s.do("expire", s.keys[0], s.argv[1]); set.IsError() {
			return set
		}
		return Zero
	})
}

func nodeRedlockAcquire(s *nativeRun) Reply {
	s.reads()
	for _, key := range s.keys {
		if s.Lookup(key) != nil {
			return Zero
		}
	}
	return s.setAll()
}

func nodeRedlockExtend(s *nativeRun) Reply {
	for _, key := range s.keys {
		if _, same, fail := s.held(key); fail.IsError() {
			return fail
		} else if !same {
			return Zero
		}
	}
	return s.setAll()
}

func (s *nativeRun) setAll() Reply {
	for _, key := range s.keys {
		s.setPX(key)
	}
	return Int(int64(len(s.keys)))
}

// nodeRedlockRelease reads all keys before it deletes any. So if a key has the
// wrong type, nothing is deleted.
func nodeRedlockRelease(s *nativeRun) Reply {
	count := int64(0)
	for i, key := range s.keys {
		_, same, fail := s.held(key)
		if fail.IsError() {
			return fail
		}
		if same && !slices.ContainsFunc(s.keys[:i], func(k []byte) bool { return string(k) == string(key) }) {
			count++
		}
	}
	for _, key := range s.keys {
		if o, same, _ := s.held(key); same {
			s.EndLock(o, LockReleased)
		}
	}
	return Int(count)
}

// redislockObtain acquires the lock if it is free. If the first ARGV[2] bytes
// of the lock's value equal those of ARGV[1], it acquires the lock again.
func redislockObtain(s *nativeRun) Reply {
	set := [][]byte{s.keys[0], s.argv[0], []byte("PX"), s.argv[2]}
	if s.Lookup(s.keys[0]) == nil {
		return s.do("set", set...)
	}
	s.reads()
	n, _ := number.ParseInt(s.argv[1]) // fits has checked that ARGV[2] is a number
	o, wrong := s.LookupString(s.keys[0])
	switch {
	case wrong:
		return Error(MsgWrongType)
	case o.Str[:min(int(n), len(o.Str))] != string(s.argv[0][:min(int(n), len(s.argv[0]))]):
		return Null
	}
	return s.do("set", set...)
}

// redlockRbLock extends the lock if the client holds it. It acquires a free
// lock only if ARGV[3] is "yes".
func redlockRbLock(s *nativeRun) Reply {
	s.reads()
	if s.Lookup(s.keys[0]) == nil {
		if string(s.argv[2]) != "yes" {
			return Null
		}
		return s.setPX(s.keys[0])
	}
	return s.ifHeld(Null, func(*keyspace.Object) Reply { return s.setPX(s.keys[0]) })
}

func laravelAdd(s *nativeRun) Reply {
	s.reads()
	if s.Lookup(s.keys[0]) != nil {
		return Null
	}
	return s.do("setex", s.keys[0], s.argv[1], s.argv[0])
}

func rueidisSet(unit string) func(s *nativeRun) Reply {
	return func(s *nativeRun) Reply {
		set := s.do("set", s.keys[0], s.argv[0], []byte(unit), s.argv[1])
		s.readsAgain()
		return set
	}
}

// rueidisSetIfAbsent reads the key after the write, so that the client is
// notified of the key's next change. The read fails for a key of another type.
func rueidisSetIfAbsent(unit string) func(s *nativeRun) Reply {
	return func(s *nativeRun) Reply {
		if _, wrong := s.LookupString(s.keys[0]); wrong {
			s.reads()
			return Error(MsgWrongType)
		}
		set := s.do("set", s.keys[0], s.argv[0], []byte("NX"), []byte(unit), s.argv[1])
		s.readsAgain()
		return set
	}
}

// redissonLock increments the count of the holder ARGV[2] in a hash. If the
// lock has another holder, it returns the remaining time of the lock. Once the
// type of the key has been checked, only HINCRBY can fail, and it is the first
// call that writes.
func redissonLock(s *nativeRun) Reply {
	s.reads()
	o, wrong := s.LookupType(s.keys[0], keyspace.TypeHash)
	if wrong {
		return Error(MsgWrongType)
	}
	if o != nil && s.do("hexists", s.keys[0], s.argv[1]).n == 0 {
		return s.do("pttl", s.keys[0])
	}
	if count := s.do("hincrby", s.keys[0], s.argv[1], []byte("1")); count.IsError() {
		return count
	}
	s.expire(s.argv[0])
	return Null
}

// oneHolderPerKey reports whether the arguments contain a holder for each key,
// as redissonRenew requires.
func oneHolderPerKey(keys, argv [][]byte) bool { return len(argv) > len(keys) }

// redissonRenew renews each lock whose hash still contains the holder that ARGV
// has for this lock. For each lock, it returns 1 if it has renewed the lock, and
// else 0.
func redissonRenew(s *nativeRun) Reply {
	s.reads()
	for _, key := range s.keys {
		if _, wrong := s.LookupType(key, keyspace.TypeHash); wrong {
			return Error(MsgWrongType)
		}
	}
	renewed := make([]Reply, len(s.keys))
	for i, key := range s.keys {
		if renewed[i] = s.do("hexists", key, s.argv[i+1]); renewed[i].n == 1 {
			s.do("pexpire", key, s.argv[0])
		}
	}
	return Array(renewed)
}

// publishes reports whether ARGV[4] is a command that publishes a message, as
// redissonUnlock requires.
func publishes(_, argv [][]byte) bool {
	return IsWord(argv[3], "PUBLISH") || IsWord(argv[3], "SPUBLISH")
}

// redissonUnlock decrements the count of the holder ARGV[3]. If the count reaches
// 0, it deletes the lock and publishes the release. It stores the reply in KEYS[3]
// for ARGV[5] milliseconds, for a client that sends the script again.
func redissonUnlock(s *nativeRun) Reply {
	s.reads()
	answered := s.do("get", s.keys[2])
	switch {
	case answered.IsError():
		return answered
	case answered.kind != kindNull:
		return luaNumber(answered.s)
	}
	switch held := s.do("hexists", s.keys[0], s.argv[2]); {
	case held.IsError():
		return held
	case held.n == 0:
		return Null
	}
	count := s.do("hincrby", s.keys[0], s.argv[2], []byte("-1"))
	result := Zero
	switch {
	case count.IsError():
		return count
	case count.n > 0:
		s.expire(s.argv[1])
	default:
		s.do("del", s.keys[0])
		s.do(string(s.argv[3]), s.keys[1], s.argv[0])
		result = One
	}
	s.do("set", s.keys[2], strconv.AppendInt(nil, result.n, 10), []byte("PX"), s.argv[4])
	return result
}

// luaNumber returns the reply of a script that returns tonumber(text).
func luaNumber(text string) Reply {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return Null
	}
	return Int(int64(f))
}

func redislockPTTL(s *nativeRun) Reply {
	return s.ifHeld(Int(-3), func(*keyspace.Object) Reply { return s.do("pttl", s.keys[0]) })
}

func potteryAcquired(s *nativeRun) Reply {
	return s.ifHeld(Zero, func(*keyspace.Object) Reply { return Int(max(s.do("pttl", s.keys[0]).n, 0)) })
}

func redlockRbPTTL(s *nativeRun) Reply {
	s.reads()
	value := s.do("get", s.keys[0])
	if value.IsError() {
		return value
	}
	return Array([]Reply{value, s.do("pttl", s.keys[0])})
}

// Many programs use no lock library. Instead, they contain one of two short
// scripts. Both compare the value of a key with the owner. One script deletes the
// key if they are equal, and the other one renews it. The texts of each script
// differ only in white space, quotes and case. The function spellings builds these
// texts, and nativeTable adds their SHA1s to those of the libraries.

// spelling is one way to write a script, and the line of its first call.
type spelling struct {
	text string
	line int
}

// spellings returns the ways to write this script: if GET KEYS[1] equals
// ARGV[1], call the command with KEYS[1] and the further arguments and return
// its reply, else return 0.
func spellings(lower, upper, further string) (all []spelling) {
	for _, quote := range []string{`"`, `'`} {
		for _, comma := range []string{",", ", "} {
			for _, names := range [][2]string{{"get", lower}, {"GET", upper}} {
				call := func(name, further string) string {
					text := "redis.call(" + quote + name + quote + comma + "KEYS[1]"
					if further != "" {
						text += comma + further
					}
					return text + ")"
				}
				held, then := "if "+call(names[0], "")+" == ARGV[1]", "return "+call(names[1], further)
				bodies := []string{held + " then " + then + " else return 0 end"}
				for _, indent := range []string{"  ", "    ", "\t"} {
					rest := "\n" + indent + then + "\nelse\n" + indent + "return 0\nend"
					bodies = append(bodies, held+" then"+rest, held+"\nthen"+rest)
				}
				for _, body := range bodies {
					all = append(all, spelling{body, 1}, spelling{body + "\n", 1},
						spelling{"\n" + body, 2}, spelling{"\n" + body + "\n", 2})
				}
			}
		}
	}
	return all
}
