package delayline

import (
	"errors"
	"fmt"
)

// Link is a link between two TAP devices.
type Link struct {
	Name string `json:"name"`
	A    End    `json:"a"`
	B    End    `json:"b"`
	AtoB Params `json:"a_to_b"`
	BtoA Params `json:"b_to_a"`
}

// Config describes the links of one delay line process.
type Config struct {
	// Socket is the path of the Unix socket for parameters and statistics.
	Socket string `json:"socket"`
	Links  []Link `json:"links"`
	// Threads is the number of OS threads that carry the links; 0 lets the process choose.
	Threads int `json:"threads,omitempty"`
	// Seed makes losses and jitter repeatable; 0 means a random seed.
	Seed uint64 `json:"seed,omitempty"`
}

// Validate returns an error if the configuration is not valid.
func (c Config) Validate() error {
	if c.Socket == "" {
		return errors.New("no control socket")
	}
	seen := map[string]bool{}
	for _, l := range c.Links {
		if l.Name == "" {
			return errors.New("a link has no name")
		}
		if seen[l.Name] {
			return fmt.Errorf("link %s occurs twice", l.Name)
		}
		seen[l.Name] = true
		for _, p := range []Params{l.AtoB, l.BtoA} {
			if err := p.Validate(); err != nil {
				return fmt.Errorf("link %s: %w", l.Name, err)
			}
		}
	}
	return nil
}

// threads returns the number of loops that serve the configuration.
func (c Config) threads() int {
	if c.Threads > 0 {
		return min(c.Threads, len(c.Links))
	}
	return min(len(c.Links), 8)
}
