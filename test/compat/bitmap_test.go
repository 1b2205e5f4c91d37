package compat

import "testing"

func TestBitmap(t *testing.T) {
	both(t, func(p *pair) {
		p.Do("GETBIT k 0", "SETBIT k 7 1", "GET k", "GETBIT k 7", "GETBIT k 6", "GETBIT k 1000", "SETBIT k 7 0",
			"GET k", "SETBIT k 100 0", "STRLEN k", "SETBIT k 100 1", "SETBIT k 100 1", "GET k", "OBJECT ENCODING k",
			"SET n 12345", "GETBIT n 3", "SETBIT n 3 0", "GET n", "OBJECT ENCODING n")
		for _, bad := range []string{"-1", "x", "4294967296", "", "9223372036854775807", "1.5"} {
			p.DoError("SETBIT k \""+bad+"\" 1", "GETBIT k \""+bad+"\"")
		}
		p.DoError("SETBIT k 0 2", "SETBIT k 0 -1", "SETBIT k 0 x", "SETBIT k 0", "GETBIT k", "SETBIT", "BITCOUNT",
			"BITPOS k", "BITOP AND d")
		p.setup("SET k v EX 100", "RPUSH l a")
		p.Do("SETBIT k 0 1", "TTL k", "SETBIT l 0 1", "GETBIT l 0", "BITCOUNT l", "BITPOS l 0", "BITOP AND d l",
			"BITOP AND d k l")
	})
}

func TestBitcount(t *testing.T) {
	both(t, func(p *pair) {
		p.setup(`SET k "\x00\xff\xf0\x0f\x01foobar"`, `SET ones "\xff\xff\xff"`, `SET zeros "\x00\x00\x00"`,
			`SET empty ""`, "SET n 1234567")
		ends := append([]string{"2", "3", "5", "9", "10", "11", "20", "87", "88", "-2", "-3", "-11", "-12", "-88",
			"-100"}, strange...)
		for _, key := range []string{"k", "ones", "zeros", "empty", "nokey", "n"} {
			p.Do("BITCOUNT "+key, "BITPOS "+key+" 0", "BITPOS "+key+" 1", "BITCOUNT "+key+" 0",
				"BITCOUNT "+key+" 0 1 BYTE x", "BITCOUNT "+key+" 0 1 FOO", "BITCOUNT "+key+" -1 -2 FOO",
				"BITPOS "+key+" 2", "BITPOS "+key+" x", "BITPOS "+key+" 1 0 1 FOO", "BITPOS "+key+" 1 0 1.5 7",
				"BITPOS "+key+" 1 0 1.5 BIT", "BITPOS "+key+" 1 0 1 BIT x")
			for _, a := range ends {
				p.DoPipelined("BITPOS "+key+" 0 "+a, "BITPOS "+key+" 1 "+a)
				for _, b := range ends {
					r := a + " " + b
					p.DoPipelined("BITCOUNT "+key+" "+r, "BITCOUNT "+key+" "+r+" byte", "BITCOUNT "+key+" "+r+" BIT",
						"BITPOS "+key+" 0 "+r, "BITPOS "+key+" 1 "+r, "BITPOS "+key+" 0 "+r+" BYTE",
						"BITPOS "+key+" 0 "+r+" bit", "BITPOS "+key+" 1 "+r+" BIT")
				}
			}
		}
	})
}

func TestBitop(t *testing.T) {
	both(t, func(p *pair) {
		p.setup(`SET a "\xf0\x0f\xaa"`, `SET b "\xff"`, `SET c "\x01\x02\x03\x04\x05"`, `SET e ""`, "SET n 123")
		for _, op := range []string{"AND", "OR", "xor", "NOT", "FOO"} {
			for _, keys := range []string{"a", "b", "a b", "b a", "a b c", "c a nokey", "nokey", "nokey nokey2", "e",
				"e a", "n a", "a a"} {
				p.DoPipelined("SET d x EX 100", "BITOP "+op+" d "+keys, "GET d", "TTL d", "OBJECT ENCODING d")
			}
		}
		p.Do("BITOP NOT a a", "GET a", "RPUSH l x", "BITOP AND l a", "TYPE l", "COMMAND GETKEYS BITOP AND d a b")
	})
}

func TestLcs(t *testing.T) {
	both(t, func(p *pair) {
		p.setup("SET a ohmytext", "SET b mynewtext", "SET c abcabcabc", "SET d cbacba", "SET e same", "SET f same",
			`SET empty ""`, "RPUSH l a", "SET n 12345", "SET m 23451")
		for _, keys := range []string{"a b", "b a", "c d", "d c", "e f", "e e", "a empty", "nokey a", "nokey nokey",
			"l a", "a l", "n m", "c e"} {
			for _, o := range []string{"", " LEN", " IDX", " IDX LEN", " IDX WITHMATCHLEN", " IDX MINMATCHLEN 2",
				" IDX MINMATCHLEN 4 WITHMATCHLEN", " MINMATCHLEN 2", " MINMATCHLEN -5 IDX", " MINMATCHLEN x",
				" MINMATCHLEN", " FOO", " len withmatchlen", " idx minmatchlen 1"} {
				p.Do("LCS " + keys + o)
			}
		}
	})
}
