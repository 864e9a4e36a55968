package lab

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// holderVariable is the prefix of environment variables that the daemons of every lab have, one for
// each sysctl that the lab has changed. Each variable names the lab and the machine's own value of
// the sysctl. So labs find each other even if one runs in a mount namespace with another /run,
// whose records the other lab does not see.
const holderVariable = "SLUICE_LAB_" // followed by the sysctl's name

// env returns the environment variables that tell other labs which sysctls this lab has changed.
func (t *tuning) env() []string {
	var all []string
	for name, original := range t.originals {
		all = append(all, holderVariable+name+"="+original+" "+t.dir)
	}
	return all
}

// holder is a lab that has changed a sysctl, and the machine's own value.
type holder struct{ dir, original string }

// holders returns the labs that have changed a sysctl and whose daemons run, one entry for each
// daemon.
func holders(sysctl string) []holder {
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // The pattern is well formed.
	var all []holder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // The process has ended.
		}
		for entry := range strings.SplitSeq(string(text), "\x00") {
			said, ok := strings.CutPrefix(entry, holderVariable+sysctl+"=")
			if original, dir, complete := strings.Cut(said, " "); ok && complete {
				all = append(all, holder{dir: dir, original: original})
			}
		}
	}
	return all
}

// adopt adds the labs whose daemons run to the recorded labs.
func (s *sysctlState) adopt(running []holder) {
	for _, h := range running {
		if s.Original == "" {
			s.Original = h.original
		}
		if !slices.Contains(s.running, h.dir) {
			s.running = append(s.running, h.dir)
		}
		if !slices.Contains(s.Labs, h.dir) {
			s.Labs = append(s.Labs, h.dir)
		}
	}
}
