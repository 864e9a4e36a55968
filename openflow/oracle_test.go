package openflow

import (
	"encoding/hex"
	"os/exec"
	"strings"
	"testing"
)

// ofpPrint returns how ovs-ofctl prints the message. What Open vSwitch thinks
// of it is in the text, also when it is an error.
func ofpPrint(t *testing.T, version string, b []byte) string {
	t.Helper()
	out, err := exec.Command("ovs-ofctl", "-O", version, "ofp-print", hex.EncodeToString(b)).CombinedOutput()
	if err != nil {
		t.Fatalf("ovs-ofctl ofp-print %x: %v\n%s", b, err, out)
	}
	return string(out)
}

func needOfctl(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("ovs-ofctl"); err != nil {
		t.Skip("ovs-ofctl is not installed")
	}
}

// TestOpenVSwitchReadsWhatWeWrite shows every sample to Open vSwitch, which
// shares no code with this package.
func TestOpenVSwitchReadsWhatWeWrite(t *testing.T) {
	needOfctl(t)
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			got := ofpPrint(t, "OpenFlow13", mustAppend(s.msg))
			if refused := strings.Contains(got, "***decode error"); refused != s.refused() {
				t.Errorf("Open vSwitch refuses it: %v, want %v\n%s", refused, s.refused(), got)
			}
			for _, want := range s.ovs {
				if !strings.Contains(got, want) {
					t.Errorf("Open vSwitch does not print %q but\n%s", want, got)
				}
			}
		})
	}
}

// TestExtendedGroupModIsThatOfOpenFlow15 shows the body of ExtGroupMod to Open
// vSwitch as the group modification of OpenFlow 1.5, which it is by definition.
func TestExtendedGroupModIsThatOfOpenFlow15(t *testing.T) {
	needOfctl(t)
	for name, want := range map[string]string{
		"insert-bucket": "INSERT_BUCKET command_bucket_id:last,group_id=5," +
			"bucket=bucket_id:4,weight:7,watch_port:3,actions=output:2,bucket=bucket_id:5,watch_group:9,actions=group:3,output:1",
		"insert-bucket-all": "INSERT_BUCKET command_bucket_id:first,group_id=6,bucket=bucket_id:1,actions=output:2",
		"remove-bucket":     "REMOVE_BUCKET command_bucket_id:4,group_id=5",
	} {
		b := mustAppend(findSample(t, name).msg)
		as15 := append([]byte{0x06, byte(TypeGroupMod), 0, 0}, b[4:8]...)
		as15 = append(as15, b[16:]...)
		be.PutUint16(as15[2:], uint16(len(as15)))
		if got := ofpPrint(t, "OpenFlow15", as15); !strings.Contains(got, want) {
			t.Errorf("%s: Open vSwitch does not print %q but\n%s", name, want, got)
		}
	}
}

func findSample(t *testing.T, name string) sample {
	t.Helper()
	for _, s := range samples() {
		if s.name == name {
			return s
		}
	}
	t.Fatalf("no sample is called %q", name)
	return sample{}
}

// TestOpenVSwitchReadsOurNames gives the printed matches back to ovs-ofctl: a
// person can paste what Sluice prints.
func TestOpenVSwitchReadsOurNames(t *testing.T) {
	needOfctl(t)
	for _, s := range matchSamples() {
		if s.refused() {
			continue
		}
		text := s.msg.(*FlowMod).Match.String()
		if strings.Contains(text, "vlan_vid=none") {
			continue // ovs-ofctl has no name for it
		}
		out, err := exec.Command("ovs-ofctl", "-O", "OpenFlow13", "parse-flow", text+",actions=drop").CombinedOutput()
		if err != nil {
			t.Errorf("%s: ovs-ofctl does not read %q: %s", s.name, text, out)
		}
	}
}
