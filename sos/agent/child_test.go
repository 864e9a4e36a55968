package agent

const childEnv = "SOS_TEST_CHILD"

func childMain() int { return 0 }
