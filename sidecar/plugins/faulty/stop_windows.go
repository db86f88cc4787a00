package faulty

// stopMyself blocks for ever, which is the closest to a stopped process here.
func stopMyself() { select {} }
