package discovery

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/openflow"
)

// TestProbeAgainstTshark checks that tshark reads a probe as valid LLDP.
func TestProbeAgainstTshark(t *testing.T) {
	for _, tool := range []string{"tshark", "text2pcap"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	d := New(Options{}, t0)
	d.PortUp(ref(0xa1, 7), openflow.MAC{2, 0, 0, 0, 0, 7}, t0)
	var dump bytes.Buffer
	fmt.Fprintf(&dump, "0000 % x\n", d.Probe(nil, ref(0xa1, 7), t0))
	file := t.TempDir() + "/probe.pcap"
	convert := exec.Command("text2pcap", "-q", "-", file)
	convert.Stdin = &dump
	if out, err := convert.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command("tshark", "-r", file, "-T", "fields", "-E", "separator=|",
		"-e", "eth.src", "-e", "lldp.chassis.id", "-e", "lldp.port.id", "-e", "lldp.time_to_live", "-e", "_ws.malformed").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.TrimSpace(string(out)), fmt.Sprintf("02:00:00:00:00:07|%x|7|16|", "00000000000000a1"); got != want {
		t.Errorf("tshark reads %q, want %q", got, want)
	}
}
