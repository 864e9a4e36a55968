package nodeapi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Kind is the kind of a node.
type Kind string

// The kinds of nodes.
const (
	// Storage is a node that stores chunks for names that are away.
	Storage Kind = "storage"
	// Compute is a node that runs a function.
	Compute Kind = "compute"
	// Cache is a node that caches contents.
	Cache Kind = "cache"
)

const (
	// MaxMACs is the maximum number of Ethernet addresses in a report.
	MaxMACs = 16
	// MaxFunction is the maximum size in bytes of the description of a function.
	MaxFunction = 64
)

// Report is what a node reports each second. One of Storage, Compute and Cache is set.
type Report struct {
	// Name is the name that the node has attached at its host.
	Name frame.GUID `json:"name"`
	// MACs lists the Ethernet addresses of the node's machine.
	MACs    []openflow.MAC `json:"macs"`
	Storage *StorageReport `json:"storage,omitempty"`
	Compute *ComputeReport `json:"compute,omitempty"`
	Cache   *CacheReport   `json:"cache,omitempty"`
}

// StorageReport is the report of a storage node.
type StorageReport struct {
	Chunks       int    `json:"chunks" doc:"Chunks in custody"`
	Destinations int    `json:"destinations" doc:"Names for which they are"`
	Bytes        int64  `json:"bytes" doc:"What they count of its size; a small chunk counts 32 KiB"`
	Size         int64  `json:"size" doc:"How many bytes it keeps at most: as it was told, or as its disk has room for"`
	Kept         uint64 `json:"kept" doc:"Chunks that it has taken into custody since its start"`
	HandedOn     uint64 `json:"handed_on" doc:"Those of them that their destinations have taken"`
	Refused      uint64 `json:"refused" doc:"How often it has not kept one"`
	Lost         uint64 `json:"lost" doc:"Those whose time was over, or that the disk did not give back"`
}

// ComputeReport is the report of a compute node.
type ComputeReport struct {
	Function string           `json:"function" doc:"What it calls: a built-in function, or the name of a program"`
	Builtin  bool             `json:"builtin" doc:"The function comes with Sluice"`
	Called   uint64           `json:"called" doc:"Calls since its start whose results were taken"`
	Failed   uint64           `json:"failed" doc:"Calls that have failed, of which the sender was told"`
	Refused  uint64           `json:"refused" doc:"How often a chunk was left with its sender"`
	Running  int              `json:"running" doc:"Calls that run now"`
	Workers  int              `json:"workers" doc:"How many run at one time at most"`
	Queued   int              `json:"queued" doc:"Chunks that wait for a call, or for their result to be taken"`
	Load     float64          `json:"load" doc:"How much of its queue is taken, from 0 to 1: of the part for senders that are proven"`
	CPUTime  control.Duration `json:"cpu_time" doc:"Processor time that calls have taken since its start"`
}

// CacheReport is the report of a cache.
type CacheReport struct {
	Contents int    `json:"contents" doc:"Contents of which it has pieces"`
	Pieces   int    `json:"pieces" doc:"Pieces and manifests on disk"`
	Bytes    int64  `json:"bytes" doc:"What they count of its size; a small one counts 8 KiB"`
	Size     int64  `json:"size" doc:"How many bytes it has at most"`
	Hits     uint64 `json:"hits" doc:"Pieces that were there when they were asked for, since its start"`
	Misses   uint64 `json:"misses" doc:"Those that had to be got"`
	Failed   uint64 `json:"failed" doc:"Those of them that could not be got"`
}

// Kind returns the kind of the node, or an empty string if the report does not contain one.
func (r *Report) Kind() Kind {
	switch {
	case r.Storage != nil:
		return Storage
	case r.Compute != nil:
		return Compute
	case r.Cache != nil:
		return Cache
	}
	return ""
}

// Load returns the used part of the node's capacity, from 0 to 1: of a storage node's disk, or of a
// compute node's queue. A cache makes room by itself, so its load is 0.
func (r *Report) Load() float64 {
	switch {
	case r.Storage != nil:
		return min(float64(r.Storage.Bytes)/float64(max(r.Storage.Size, 1)), 1)
	case r.Compute != nil:
		return r.Compute.Load
	}
	return 0
}

// Check checks that the report is possible. It may come from a machine that someone else controls.
func (r *Report) Check() error {
	var kinds int
	var counts []int64
	if s := r.Storage; s != nil {
		kinds++
		counts = append(counts, int64(s.Chunks), int64(s.Destinations), s.Bytes, s.Size)
	}
	if c := r.Compute; c != nil {
		kinds++
		counts = append(counts, int64(c.Running), int64(c.Workers), int64(c.Queued), int64(c.CPUTime))
		if c.Function == "" || c.Function != Text(c.Function, MaxFunction) {
			return fmt.Errorf("report: function %.*q: want 1 to %d bytes of text", MaxFunction, c.Function, MaxFunction)
		}
		if !(c.Load >= 0 && c.Load <= 1) {
			return fmt.Errorf("report: a load of %v: want 0 to 1", c.Load)
		}
	}
	if c := r.Cache; c != nil {
		kinds++
		counts = append(counts, int64(c.Contents), int64(c.Pieces), c.Bytes, c.Size)
	}
	switch {
	case kinds != 1:
		return fmt.Errorf("report: %d kinds of node: want one", kinds)
	case r.Name.IsZero():
		return errors.New("report: no name")
	case len(r.MACs) > MaxMACs:
		return fmt.Errorf("report: %d Ethernet addresses: want %d at most", len(r.MACs), MaxMACs)
	case slices.Min(counts) < 0:
		return fmt.Errorf("report: %d of something", slices.Min(counts))
	}
	return nil
}

// Text returns a node's text for display: at most limit bytes, without control characters.
func Text(text string, limit int) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text[:min(len(text), limit)], ""))
}
