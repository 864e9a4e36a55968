package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// chain and nftRule are objects of nftables' JSON (libnftables-json(5)). nftables also lists the rules
// of iptables-nft and ebtables-nft.
type (
	chain struct {
		Family, Table, Name, Hook, Policy string
		Dev                               json.RawMessage
	}
	nftRule struct {
		Family, Table, Chain string
		Expr                 []map[string]json.RawMessage
	}
)

// ruleset parses nftables' JSON.
func ruleset(b []byte) (chains []chain, rules []nftRule, err error) {
	var all struct {
		Nftables []struct {
			Chain *chain
			Rule  *nftRule
		}
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, nil, fmt.Errorf("nft -j list ruleset: %w", err)
	}
	for _, o := range all.Nftables {
		if o.Chain != nil {
			chains = append(chains, *o.Chain)
		}
		if o.Rule != nil {
			rules = append(rules, *o.Rule)
		}
	}
	return chains, rules, nil
}

// restricted returns the base chains (those with a hook, through which all packets pass) whose policy
// is to drop.
func restricted(chains []chain) (out []string) {
	for _, c := range chains {
		if c.Hook != "" && c.Policy == "drop" {
			out = append(out, fmt.Sprintf("%s %s %s (%s)", c.Family, c.Table, c.Name, c.Hook))
		}
	}
	return out
}

// touching returns the chains with rules that name an interface and block packets.
func touching(chains []chain, rules []nftRule, name string) (out []string) {
	hooked := map[string]bool{} // chains of family netdev that are hooked to the interface
	for _, c := range chains {
		var one string
		var many []string
		_ = json.Unmarshal(c.Dev, &one)
		_ = json.Unmarshal(c.Dev, &many)
		// Some versions of nft do not print the interface; then the chain may be hooked to it.
		hooked[c.Table+" "+c.Name] = c.Family == "netdev" && (len(c.Dev) == 0 || one == name || slices.Contains(many, name))
	}
	for _, r := range rules {
		at := fmt.Sprintf("%s %s %s", r.Family, r.Table, r.Chain)
		if r.keepsBack() && (r.names(name) || r.Family == "netdev" && hooked[r.Table+" "+r.Chain]) && !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	return out
}

// keepsBack reports whether a rule drops packets, rejects them, or passes them to a program.
func (r nftRule) keepsBack() bool {
	for _, e := range r.Expr {
		for verdict, v := range e {
			var target struct{ Name string }
			_ = json.Unmarshal(v, &target)
			if slices.Contains([]string{"drop", "reject", "queue"}, verdict) || verdict == "xt" && stopping(target.Name) {
				return true
			}
		}
	}
	return false
}

// stopping reports whether a target of iptables blocks packets.
func stopping(target string) bool {
	return slices.Contains([]string{"DROP", "REJECT", "NFQUEUE"}, target)
}

// names reports whether a rule matches packets by the name of the interface.
func (r nftRule) names(name string) bool {
	for _, e := range r.Expr {
		var m struct {
			Op    string
			Left  struct{ Meta struct{ Key string } }
			Right any
		}
		if json.Unmarshal(e["match"], &m) != nil || m.Op != "==" && m.Op != "in" || !strings.HasPrefix(m.Left.Meta.Key, "iif") && !strings.HasPrefix(m.Left.Meta.Key, "oif") {
			continue
		}
		of, many := m.Right.(map[string]any)
		elements, _ := of["set"].([]any)
		if !many {
			elements = []any{m.Right}
		}
		if slices.ContainsFunc(elements, func(pattern any) bool { return is(name, fmt.Sprint(pattern)) }) {
			return true
		}
	}
	return false
}

// is reports whether an interface's name matches a pattern, which may end with *.
func is(name, pattern string) bool {
	match, err := path.Match(pattern, name)
	return err == nil && match
}

// legacy lists the programs that print the rules of netfilter's legacy interfaces, which precede
// nftables, and the files that show whether such rules exist.
var legacy = []struct{ program, file string }{
	{"iptables-legacy-save", "/proc/net/ip_tables_names"},
	{"ip6tables-legacy-save", "/proc/net/ip6_tables_names"},
	{"ebtables-legacy-save", "/sys/module/ebtable_filter/initstate"},
}

// legacyRules returns the chains of netfilter's legacy interfaces with rules that block packets of the
// named network interface, and the chains whose policy is to drop.
func (s *System) legacyRules(ctx context.Context, name string) (touching, restricted []string) {
	for _, l := range legacy {
		if s.read(l.file) == "" {
			continue
		}
		out, err := s.Output(ctx, l.program)
		if err != nil {
			continue // the program is not installed, so the rules are not known
		}
		some, policies := saved(string(out), name)
		for _, c := range some {
			touching = append(touching, l.program+": "+c)
		}
		for _, c := range policies {
			restricted = append(restricted, l.program+": "+c)
		}
	}
	return touching, restricted
}

// saved parses the output of iptables-save or ebtables-save. It returns the chains with rules that block
// packets of the named interface, and the chains whose policy is to drop.
func saved(text, name string) (touching, restricted []string) {
	table := ""
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case strings.HasPrefix(words[0], "*"):
			table = words[0][1:]
		case strings.HasPrefix(words[0], ":") && len(words) > 1 && words[1] == "DROP":
			restricted = append(restricted, table+" "+words[0][1:])
		case words[0] == "-A" && len(words) > 1:
			at := table + " " + words[1]
			if savedNames(words, name) && !slices.Contains(touching, at) {
				touching = append(touching, at)
			}
		}
	}
	return touching, restricted
}

// savedNames reports whether a rule in the form of iptables-save names the interface and blocks its
// packets.
func savedNames(words []string, name string) bool {
	named, stops := false, false
	for i, w := range words[:len(words)-1] {
		next := words[i+1]
		switch w {
		case "-i", "-o", "--in-interface", "--out-interface", "--logical-in", "--logical-out":
			named = named || words[i-1] != "!" && next != "!" && is(name, strings.Replace(next, "+", "*", 1))
		case "-j":
			stops = stops || stopping(next)
		}
	}
	return named && stops
}
