// Package version identifies the build of Sluice.
package version

import (
	"runtime"
	"runtime/debug"
)

// number is set by the linker: -ldflags "-X .../internal/version.number=1.2.3".
var number = "dev"

// Info describes a build.
type Info struct {
	Version  string `json:"version" doc:"Version of the program" example:"1.0.0"`
	Revision string `json:"revision,omitempty" doc:"Revision of the sources, where the build knew it"`
	Go       string `json:"go" doc:"Version of the Go tool chain"`
	Platform string `json:"platform" doc:"Operating system and architecture" example:"linux/amd64"`
}

// Get returns the description of this build.
func Get() Info {
	i := Info{Version: number, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				i.Revision = s.Value
			}
		}
	}
	return i
}
