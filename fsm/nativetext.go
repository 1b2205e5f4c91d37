package fsm

// Many programs have no library, but a script of four lines that everybody writes
// alike: delete the key, or renew it, if it holds the token. What differs is the
// white space, the quotes and the case. So its spellings are built here, and their
// SHA1s join those of the libraries.

// spelling is one way to write a script, and the line of its first call.
type spelling struct {
	text string
	line int
}

// spellings builds the ways to write "if GET KEYS[1] equals ARGV[1], return the
// command of KEYS[1] and the further arguments, else 0".
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
					all = append(all, spelling{body, 1}, spelling{body + "\n", 1}, spelling{"\n" + body, 2}, spelling{"\n" + body + "\n", 2})
				}
			}
		}
	}
	return all
}
