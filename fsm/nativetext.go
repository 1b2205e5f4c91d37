package fsm

// Many programs use no lock library, but the same script of four lines: delete
// the key, or renew it, if its value is the token. Their texts differ only in
// white space, quotes and case. This file builds these spellings, and their
// SHA1s are added to those of the libraries.

// spelling is one way to write a script, and the line of its first call.
type spelling struct {
	text string
	line int
}

// spellings returns the ways to write this script: if GET KEYS[1] equals
// ARGV[1], return the command with KEYS[1] and the further arguments, else 0.
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
