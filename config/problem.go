package config

import "github.com/sluice-net/sluice/internal/strictyaml"

// Problem is one thing that is wrong with a configuration. Its source is the file,
// "environment" or "flags".
type Problem = strictyaml.Problem

// Problems is everything that is wrong with a configuration.
type Problems = strictyaml.Problems
