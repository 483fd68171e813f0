-- The workers that a job asks for, as JSON. A job that asks for some has the bit 8 in jobs.details and ended.details.
ALTER TABLE details ADD COLUMN narrowing TEXT;
