package soak

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/network/rule"
)

// rules holds flow entries by their identifiers, each with a text for people.
type rules map[ruleKey]string

// ruleKey identifies an entry: each of Sluice's rules has a cookie of its own.
type ruleKey struct {
	sw       string // datapath identifier
	cookie   rule.Cookie
	table    int
	priority int
}

// sameRules waits until the switches have exactly the rules of the ledger.
func (f *fleet) sameRules(ctx context.Context) (count int, err error) {
	err = testbed.Poll(ctx, "the switches' rules to be those of the ledger", func() error {
		ledger, err := f.ledger(ctx)
		if err != nil {
			return err
		}
		installed := rules{}
		for _, s := range f.lab.Topology().Switches {
			text, err := f.lab.Switch(s.Name).Ofctl(ctx, "dump-flows")
			if err != nil {
				return err
			}
			if err := parseFlows(installed, fmt.Sprintf("%016x", f.lab.Switch(s.Name).DPID()), text); err != nil {
				return err
			}
		}
		count = len(installed)
		return diff(ledger, installed)
	})
	return count, err
}

// ledger returns the rules that the controller declares.
func (f *fleet) ledger(ctx context.Context) (rules, error) {
	var all []struct {
		Switch   string `json:"switch"`
		Owner    string `json:"owner"`
		Name     string `json:"name"`
		Table    int    `json:"table"`
		Priority int    `json:"priority"`
		Match    string `json:"match"`
		Cookie   string `json:"cookie"`
	}
	if err := f.Get(ctx, "/api/v1/network/rules", &all); err != nil {
		return nil, err
	}
	out := rules{}
	for _, r := range all {
		cookie, err := strconv.ParseUint(r.Cookie, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("rule %s of %s: cookie: %w", r.Name, r.Owner, err)
		}
		out[ruleKey{r.Switch, rule.Cookie(cookie), r.Table, r.Priority}] = fmt.Sprintf("%s %s: %s", r.Owner, r.Name, r.Match)
	}
	return out, nil
}

var (
	flowCookie   = regexp.MustCompile(`cookie=(0x[0-9a-f]+)`)
	flowTable    = regexp.MustCompile(`table=(\d+)`)
	flowPriority = regexp.MustCompile(`priority=(\d+)`)
)

// defaultPriority is the priority of entries for which ovs-ofctl prints none.
const defaultPriority = 32768

// parseFlows adds a switch's entries that belong to Sluice, as ovs-ofctl prints them.
func parseFlows(into rules, sw, text string) error {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		found := flowCookie.FindStringSubmatch(line)
		if found == nil {
			continue // This line is the heading.
		}
		cookie, err := strconv.ParseUint(found[1], 0, 64)
		if err != nil {
			return fmt.Errorf("flow %q: %w", line, err)
		}
		if !rule.Cookie(cookie).Ours() {
			continue
		}
		key := ruleKey{sw: sw, cookie: rule.Cookie(cookie), priority: defaultPriority}
		for pattern, value := range map[*regexp.Regexp]*int{flowTable: &key.table, flowPriority: &key.priority} {
			if found := pattern.FindStringSubmatch(line); found != nil {
				if *value, err = strconv.Atoi(found[1]); err != nil {
					return fmt.Errorf("flow %q: %w", line, err)
				}
			}
		}
		into[key] = line
	}
	return nil
}

// differencesNamed bounds the differences that an error names.
const differencesNamed = 5

// diff returns an error that names the rules that only one side has.
func diff(ledger, installed rules) error {
	var all []string
	for k, text := range ledger {
		if _, ok := installed[k]; !ok {
			all = append(all, fmt.Sprintf("switch %s lacks %v (%s)", k.sw, k.cookie, text))
		}
	}
	for k, text := range installed {
		if _, ok := ledger[k]; !ok {
			all = append(all, fmt.Sprintf("switch %s has an undeclared rule: %s", k.sw, text))
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	more := ""
	if len(all) > differencesNamed {
		more = fmt.Sprintf("; and %d more", len(all)-differencesNamed)
	}
	return fmt.Errorf("%d differences: %s%s", len(all), strings.Join(all[:min(len(all), differencesNamed)], "; "), more)
}
