package device

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/genl"
	"github.com/sluice-net/sluice/openflow"
)

// Radio is the state of an interface's radio.
type Radio struct {
	// Signal is in dBm; zero if it is unknown.
	Signal int
	// AP is the access point that the radio is associated with; zero if that is unknown.
	AP openflow.MAC
}

// Numbers of nl80211 (linux/nl80211.h).
const (
	getStation      = 17
	attrIfindex     = 3
	attrMAC         = 6
	attrStationInfo = 21
	infoSignal      = 7
)

// ReadRadio returns the signal of an interface, from the kernel's wireless stack or from the older
// /proc/net/wireless. It returns false if the interface has no radio.
func ReadRadio(name string, index int) (Radio, bool) {
	if r, err := station(index); err == nil {
		return r, true
	}
	b, err := os.ReadFile("/proc/thread-self/net/wireless")
	if err != nil {
		return Radio{}, false
	}
	signal, ok := parseWireless(b, name)
	return Radio{Signal: signal}, ok
}

// station asks nl80211 for the access point's entry.
func station(index int) (Radio, error) {
	family, err := genl.Find("nl80211")
	if err != nil {
		return Radio{}, err
	}
	request := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_DUMP)
	request.AddData(genl.Message{Command: getStation, Version: 1})
	request.AddData(nl.NewRtAttr(attrIfindex, nl.Uint32Attr(uint32(index))))
	messages, err := request.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return Radio{}, fmt.Errorf("nl80211: %w", err)
	}
	if len(messages) == 0 {
		return Radio{}, errors.New("nl80211: no access point")
	}
	return parseStation(messages[0])
}

// parseStation parses an answer to a request for stations.
func parseStation(b []byte) (Radio, error) {
	if len(b) < unix.GENL_HDRLEN {
		return Radio{}, errors.New("nl80211: a message that ends early")
	}
	var r Radio
	err := eachAttribute(b[unix.GENL_HDRLEN:], func(kind uint16, value []byte) error {
		switch kind {
		case attrMAC:
			if len(value) == len(r.AP) {
				r.AP = openflow.MAC(value)
			}
		case attrStationInfo:
			return eachAttribute(value, func(kind uint16, value []byte) error {
				if kind == infoSignal && len(value) > 0 {
					r.Signal = int(int8(value[0]))
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return Radio{}, fmt.Errorf("nl80211: %w", err)
	}
	return r, nil
}

// parseWireless finds the level of an interface in /proc/net/wireless, whose lines are "wlan0:
// 0000 54. -56. -256 0 ...".
func parseWireless(b []byte, name string) (int, bool) {
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		device, rest, ok := strings.Cut(strings.TrimSpace(lines.Text()), ":")
		fields := strings.Fields(rest)
		if !ok || device != name || len(fields) < 3 {
			continue
		}
		level, err := strconv.Atoi(strings.TrimSuffix(fields[2], "."))
		if err != nil || level >= 0 || level < -200 {
			return 0, false // the driver uses a scale of its own
		}
		return level, true
	}
	return 0, false
}
