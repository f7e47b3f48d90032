/** Routes of a deployment's services: memory (interface 4.7; decisions, Deployment services). */
export const memoryRoutes = {} as const;
