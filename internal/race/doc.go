// Package race tells tests whether they run under the race detector.
package race
