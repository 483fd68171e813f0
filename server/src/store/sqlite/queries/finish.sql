UPDATE installation SET committed = ?1, last_job = max(last_job, ?2), last_fence = max(last_fence, ?3),
    last_worker = max(last_worker, ?4), ended = ended + ?5
