package openflow

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A golden is a block of three lines: a name after "# ", the message in
// hexadecimal, and what Decode makes of it: the printed message, or the error.
type golden struct{ name, hex, text string }

func readGoldens(t *testing.T, file string) []golden {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var goldens []golden
	for block := range strings.SplitSeq(strings.TrimSpace(string(raw)), "\n\n") {
		lines := strings.SplitN(block, "\n", 3)
		if len(lines) != 3 || !strings.HasPrefix(lines[0], "# ") {
			t.Fatalf("%s: %q is no block of three lines", file, block)
		}
		goldens = append(goldens, golden{lines[0][2:], lines[1], lines[2]})
	}
	return goldens
}

func writeGoldens(t *testing.T, file string, goldens []golden) {
	t.Helper()
	var s strings.Builder
	for i, g := range goldens {
		if i > 0 {
			s.WriteByte('\n')
		}
		fmt.Fprintf(&s, "# %s\n%s\n%s\n", g.name, g.hex, g.text)
	}
	if err := os.WriteFile(file, []byte(s.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// decodeText returns the printed message or the error.
func decodeText(t *testing.T, name, digits string) string {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	_, m, err := Decode(b)
	if err != nil {
		return "error: " + err.Error()
	}
	return strings.TrimSpace(m.String())
}

// TestGoldenMessages fixes the bytes and the printed form of every sample.
func TestGoldenMessages(t *testing.T) {
	const file = "testdata/messages.txt"
	if *update {
		var goldens []golden
		for _, s := range samples() {
			digits := hex.EncodeToString(mustAppend(s.msg))
			goldens = append(goldens, golden{s.name, digits, decodeText(t, s.name, digits)})
		}
		writeGoldens(t, file, goldens)
	}
	goldens := readGoldens(t, file)
	all := samples()
	if len(goldens) != len(all) {
		t.Fatalf("%d goldens, %d samples; run go test -run Golden -update and read the difference", len(goldens), len(all))
	}
	for i, g := range goldens {
		if got := hex.EncodeToString(mustAppend(all[i].msg)); g.name != all[i].name || got != g.hex {
			t.Errorf("%s is encoded as\n%s, want %s\n%s", all[i].name, got, g.name, g.hex)
		}
		if got := decodeText(t, g.name, g.hex); got != g.text {
			t.Errorf("%s is printed as\n%s, want\n%s", g.name, got, g.text)
		}
	}
}

// TestGoldenRefusals fixes what is said about wrong input.
func TestGoldenRefusals(t *testing.T) {
	const file = "testdata/refusals.txt"
	goldens := readGoldens(t, file)
	for i := range goldens {
		g := &goldens[i]
		got := decodeText(t, g.name, g.hex)
		if *update {
			g.text = got
		}
		if got != g.text {
			t.Errorf("%s:\n%s, want\n%s", g.name, got, g.text)
		}
		if !strings.HasPrefix(got, "error: ") {
			t.Errorf("%s is accepted: %s", g.name, got)
		}
	}
	if *update {
		writeGoldens(t, file, goldens)
	}
}

const recorded = "testdata/openvswitch.txt"

// record keeps the first message of each kind that Open vSwitch and ovs-ofctl
// said to each other, apart from the longest.
func record(t *testing.T, messages [][]byte) {
	t.Helper()
	var goldens []golden
	kinds := make(map[string]bool)
	for _, b := range messages {
		digits := hex.EncodeToString(b)
		text := decodeText(t, "recorded", digits)
		words := append(strings.Fields(text), "", "")
		kind := fmt.Sprintf("%s %s %d", words[0], words[1], len(b))
		if len(b) <= 2000 && !kinds[kind] {
			kinds[kind] = true
			goldens = append(goldens, golden{strings.TrimSpace(words[0] + " " + words[1]), digits, text})
		}
	}
	writeGoldens(t, recorded, goldens)
}

// TestGoldenOpenVSwitch reads what Open vSwitch 3.1 once wrote.
func TestGoldenOpenVSwitch(t *testing.T) {
	for _, g := range readGoldens(t, recorded) {
		if got := decodeText(t, g.name, g.hex); got != g.text {
			t.Errorf("%s is printed as\n%s, want\n%s", g.name, got, g.text)
		}
	}
}
