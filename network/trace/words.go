package trace

import (
	"strings"
)

// word is one word of a description.
type word struct {
	text, name, value string
	hasValue          bool
	offset            int
}

func split(s string) []word {
	var words []word
	for at := 0; at < len(s); {
		size := strings.IndexAny(s[at:], ", \t\n")
		if size < 0 {
			size = len(s) - at
		}
		if size > 0 {
			w := word{text: s[at : at+size], offset: at}
			w.name, w.value, w.hasValue = strings.Cut(w.text, "=")
			w.name = strings.ToLower(w.name)
			if a, ok := aliases[w.name]; ok {
				w.name = a
			}
			words = append(words, w)
		}
		at += size + 1
	}
	return words
}

// rank orders words so that those which determine the kind of packet come first, because the
// meaning of the others depends on it.
func (w word) rank() int {
	if _, ok := protocols[w.name]; ok || w.name == "eth_type" {
		return 0
	}
	switch w.name {
	case "ip_src", "ip_dst":
		return 1 // an address determines the EtherType
	case "ip_proto", "vlan_vid":
		return 2
	case "icmpv6_type":
		return 3
	}
	return 4
}
