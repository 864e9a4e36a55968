package mark

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// These are keys of external_ids in the database.
const (
	// TagMark and TagOwn, on a queue, are the DSCP with which its packets should be marked, and the
	// DSCP that they get back.
	TagMark = "sluice-mark"
	TagOwn  = "sluice-dscp"
	// TagKept, on a queue, is a DSCP that some of its packets have already and keep: connections of
	// its class use it between two agents.
	TagKept = "sluice-kept-dscp"
	// TagProbes, on a queue, marks the queue of the controller's probes of links, which are
	// not IP packets and have no mark.
	TagProbes = "sluice-probes"
	// TagKnown, on a port's QoS, is the list of entries that the classifier has installed.
	TagKnown = "sluice-classifier"
)

// Entry is the mark of one queue. Mark is the DSCP of marked packets, and Own the DSCP that they
// get back.
type Entry struct {
	Queue     uint32
	Mark, Own uint8
}

// String returns the entry as it appears in the list of TagKnown.
func (e Entry) String() string { return fmt.Sprintf("%d:%d>%d", e.Queue, e.Mark, e.Own) }

// Kept returns the entry of packets that have their mark already, and keep it.
func Kept(queue uint32, dscp uint8) Entry { return Entry{Queue: queue, Mark: dscp, Own: dscp} }

// Tags returns the tags of the entry for the queue's row.
func (e Entry) Tags() map[string]string {
	return map[string]string{TagMark: strconv.Itoa(int(e.Mark)), TagOwn: strconv.Itoa(int(e.Own))}
}

// Read returns the entry in a queue's tags. ok is false if the queue's packets should not be
// marked.
func Read(queue uint32, tags map[string]string) (e Entry, ok bool, err error) {
	if tags[TagMark] == "" || tags[TagOwn] == "" {
		return Entry{}, false, nil
	}
	mark, err := dscp(queue, TagMark, tags)
	own, ownErr := dscp(queue, TagOwn, tags)
	err = cmp.Or(err, ownErr)
	return Entry{queue, mark, own}, err == nil, err
}

// ReadKept returns the entry of those packets of a queue that keep their mark. ok is false if there
// are none.
func ReadKept(queue uint32, tags map[string]string) (e Entry, ok bool, err error) {
	if tags[TagKept] == "" {
		return Entry{}, false, nil
	}
	kept, err := dscp(queue, TagKept, tags)
	return Kept(queue, kept), err == nil, err
}

func dscp(queue uint32, key string, tags map[string]string) (uint8, error) {
	n, err := strconv.ParseUint(tags[key], 10, 8)
	if err != nil || n > 63 {
		return 0, fmt.Errorf("queue %d: %s %q: want a DSCP, 0 to 63", queue, key, tags[key])
	}
	return uint8(n), nil
}

// List returns the value of TagKnown that lists the entries.
func List(entries []Entry) string {
	words := make([]string, len(entries))
	for i, e := range entries {
		words[i] = e.String()
	}
	return strings.Join(words, " ")
}

// Contains reports whether a value of TagKnown lists an entry.
func Contains(list string, e Entry) bool { return slices.Contains(strings.Fields(list), e.String()) }
